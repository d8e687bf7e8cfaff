# What `cmake --install` puts where. The tree finds its own parts by relative paths only, so that it may be moved.
set(METRO_SHARE ${CMAKE_INSTALL_DATADIR}/metro)  # METRO_ROOT of users: laid out like the source

# MPI, HDF5 and Kokkos often lie where the loader does not look; the folders they were linked from stay in the program.
set_target_properties(metro PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS metro)
install(PROGRAMS mpi_launch/metro_mpirun.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME metro_mpirun)

install(FILES README.md CONTRIBUTING.md LICENSE DESTINATION ${METRO_SHARE})
install(DIRECTORY docs inputs DESTINATION ${METRO_SHARE} PATTERN ".*" EXCLUDE)
install(PROGRAMS tools/chat_renderer.py tools/plot_run.py tools/plot_replay.py tools/scaling_table.py DESTINATION ${METRO_SHARE}/tools)
install(DIRECTORY slurm DESTINATION ${METRO_SHARE} USE_SOURCE_PERMISSIONS PATTERN ".*" EXCLUDE)

# Not from ${CMAKE_INSTALL_PREFIX}: `cmake --install --prefix` and later moves put the tree elsewhere.
file(RELATIVE_PATH METRO_SHARE_TO_PROGRAMS ${CMAKE_INSTALL_FULL_DATADIR}/metro ${CMAKE_INSTALL_FULL_BINDIR})
configure_file(cmake/modulefile.in generated/modulefile @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/modulefile DESTINATION ${METRO_SHARE}/modulefiles/metro RENAME ${PROJECT_VERSION})
