// Catch2's main for tests that need neither MPI nor Kokkos.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

// HDF5 keeps memory after a failed write or a damaged file. Ignored in builds without sanitizers.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
