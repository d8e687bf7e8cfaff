// Catch2's main for tests that run kernels: Kokkos lives from before the first test until after the last.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <Kokkos_Core.hpp>

// A test asks for more memory than there is; without this AddressSanitizer ends the process instead of failing the
// allocation. Ignored in builds without it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

int main(int argc, char** argv) {
  Kokkos::initialize();  // without the arguments: they are Catch2's
  const int result = Catch::Session().run(argc, argv);
  Kokkos::finalize();
  return result;
}
