# What every test under ctest needs: root and more ranks than cores under Open MPI, one thread per rank.
set(metro_test_environment
  "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1"
  "OMPI_MCA_mpi_yield_when_idle=1;OMPI_MCA_btl_vader_single_copy_mechanism=none;OMP_NUM_THREADS=1;OMP_PROC_BIND=false;OMP_WAIT_POLICY=passive"
  # Open MPI keeps memory until exit, which the leak check would report thousands of times.
  "ASAN_OPTIONS=detect_leaks=0")

# metro_add_unit_test(ROOM SOURCES file... USES room... [MAIN library] [GPU])
#   One executable per room, every TEST_CASE a ctest test with label unit. METRO_TEST_DATA and METRO_SOURCE_DIR are paths.
#   GPU: its tests run kernels; in a build for a device they get label gpu as well and have the device to themselves.
function(metro_add_unit_test room)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "GPU" "MAIN" "SOURCES;USES;LIBRARIES")
  if(NOT ARG_MAIN)
    set(ARG_MAIN metro_test_main)
  endif()
  metro_test_executable(test_${room} "${ARG_MAIN}" "${ARG_SOURCES}" "${ARG_USES}" "${ARG_LIBRARIES}")
  if(METRO_DEVICE STREQUAL "none")
    catch_discover_tests(test_${room} TEST_PREFIX "${room}. " PROPERTIES LABELS unit TIMEOUT 120)
    return()
  endif()
  # One ctest test a program: asking it for its tests would need the device's driver where it is built, and starting on a
  # device takes longer than most of them.
  add_test(NAME ${room} COMMAND test_${room})
  set_tests_properties(${room} PROPERTIES LABELS unit TIMEOUT 600)
  if(ARG_GPU)
    set_tests_properties(${room} PROPERTIES LABELS "unit;gpu" RESOURCE_LOCK gpu)
  endif()
endfunction()

# metro_add_mpi_test(NAME RANKS n... SOURCES file... USES room... MAIN library): the same executable at several rank
# counts, label mpi.
function(metro_add_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "MAIN" "RANKS;SOURCES;USES;LIBRARIES")
  metro_test_executable(mpi_test_${name} "${ARG_MAIN}" "${ARG_SOURCES}" "${ARG_USES}" "${ARG_LIBRARIES}")
  foreach(ranks ${ARG_RANKS})
    add_test(NAME "${name}.np${ranks}"
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none $<TARGET_FILE:mpi_test_${name}>)
    set_tests_properties("${name}.np${ranks}" PROPERTIES
      LABELS mpi TIMEOUT 400 PROCESSORS ${ranks} ENVIRONMENT "${metro_test_environment}")
  endforeach()
endfunction()

function(metro_test_executable target main sources uses libraries)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE ${main} ${libraries} fmt::fmt nlohmann_json::nlohmann_json)
  foreach(room ${uses})
    target_link_libraries(${target} PRIVATE metro_${room})
  endforeach()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    METRO_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" METRO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()
