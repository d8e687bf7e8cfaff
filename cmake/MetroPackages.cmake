# Finds every package; a missing one stops the configuration with the command that brings it.
function(metro_require what found)
  if(NOT found)
    message(FATAL_ERROR "${what} was not found. On Debian 12: bash mpi_launch/install.sh")
  endif()
endfunction()

find_package(Threads REQUIRED)
find_package(MPI QUIET COMPONENTS C)  # the C interface only: the C++ target pulls in a library nobody uses
metro_require("MPI" "${MPI_C_FOUND}")
# Or <mpi.h> declares the C++ classes of old to C++ code, which then ask for that library when linked.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

set(HDF5_PREFER_PARALLEL ON)
find_package(HDF5 QUIET COMPONENTS C)
metro_require("HDF5 (C library)" "${HDF5_FOUND}")

# A Kokkos with CUDA would send every unit that uses it to its own compiler script; MetroDevice.cmake does it otherwise.
set(Kokkos_LAUNCH_COMPILER OFF)
set(CMAKE_CXX_EXTENSIONS OFF)  # for its own check alone: what it forbids concerns units that include it
# Debian's own Kokkos configuration (3.4) is broken: only a 4.0 or newer one is taken, else the find-module.
find_package(Kokkos 4.0 CONFIG QUIET)
unset(CMAKE_CXX_EXTENSIONS)
if(Kokkos_FOUND)
  set(METRO_KOKKOS_VERSION ${Kokkos_VERSION})
else()
  find_package(TrilinosKokkos QUIET)
  metro_require("Kokkos" "${TrilinosKokkos_FOUND}")
  set(METRO_KOKKOS_VERSION ${TrilinosKokkos_VERSION})
endif()

find_package(OpenMP QUIET COMPONENTS CXX)
metro_require("OpenMP (the compiler's own)" "${OpenMP_CXX_FOUND}")

find_package(fmt QUIET)
metro_require("fmt" "${fmt_FOUND}")
find_package(nlohmann_json QUIET)
metro_require("nlohmann-json" "${nlohmann_json_FOUND}")
find_package(toml11 QUIET)
metro_require("toml11" "${toml11_FOUND}")
find_package(CLI11 QUIET)
metro_require("CLI11" "${CLI11_FOUND}")

find_package(PkgConfig QUIET)
metro_require("pkg-config" "${PkgConfig_FOUND}")
foreach(module libxxhash libutf8proc libpcre2-8 sentencepiece zlib libzstd)
  pkg_check_modules(${module} QUIET IMPORTED_TARGET ${module})
  metro_require("${module}" "${${module}_FOUND}")
endforeach()
