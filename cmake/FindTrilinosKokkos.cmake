# Finds the Kokkos that Debian ships inside Trilinos (libtrilinos-kokkos-dev: version 3.4.1, Serial backend).
# Defines Kokkos::kokkos and TrilinosKokkos_VERSION.
find_path(TrilinosKokkos_INCLUDE_DIR Kokkos_Core.hpp PATH_SUFFIXES trilinos)
find_library(TrilinosKokkos_LIBRARY trilinos_kokkoscore)

if(TrilinosKokkos_INCLUDE_DIR)
  file(STRINGS ${TrilinosKokkos_INCLUDE_DIR}/KokkosCore_config.h version_line REGEX "define KOKKOS_VERSION ")
  string(REGEX MATCH "[0-9]+" version_number "${version_line}")
  math(EXPR major "${version_number} / 10000")
  math(EXPR minor "${version_number} / 100 % 100")
  math(EXPR patch "${version_number} % 100")
  set(TrilinosKokkos_VERSION ${major}.${minor}.${patch})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TrilinosKokkos
  REQUIRED_VARS TrilinosKokkos_LIBRARY TrilinosKokkos_INCLUDE_DIR VERSION_VAR TrilinosKokkos_VERSION)

if(TrilinosKokkos_FOUND AND NOT TARGET Kokkos::kokkos)
  add_library(Kokkos::kokkos UNKNOWN IMPORTED)
  set_target_properties(Kokkos::kokkos PROPERTIES
    IMPORTED_LOCATION ${TrilinosKokkos_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${TrilinosKokkos_INCLUDE_DIR}
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
endif()
