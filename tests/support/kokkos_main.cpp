// Catch2's main for tests that run kernels: Kokkos and the queue live from before the first test until after the last.
#include "kernels/queue_lifetime.hpp"

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
  metro::start_queue(0);
  const int result = Catch::Session().run(argc, argv);
  metro::stop_queue();
  Kokkos::finalize();
  return result;
}
