#include "mpi_launch/kokkos_runtime.hpp"

#include "base/error.hpp"
#include "kernels/queue_lifetime.hpp"

#include <Kokkos_Core.hpp>

#include <exception>
#include <limits>
#include <type_traits>

namespace metro {

namespace {

constexpr bool host_backend_has_threads() {
#ifdef KOKKOS_ENABLE_SERIAL
  return !std::is_same_v<Kokkos::DefaultHostExecutionSpace, Kokkos::Serial>;
#else
  return true;
#endif
}

void initialise(int num_threads, bool warnings, [[maybe_unused]] int device) {
#if KOKKOS_VERSION >= 40000
  Kokkos::InitializationSettings settings;
  settings.set_num_threads(num_threads).set_disable_warnings(!warnings);
#ifdef KOKKOS_ENABLE_CUDA
  settings.set_device_id(device);
#endif
  Kokkos::initialize(settings);
#else
  Kokkos::InitArguments arguments;
  arguments.num_threads = num_threads;
  arguments.disable_warnings = !warnings;
  Kokkos::initialize(arguments);
#endif
}

}  // namespace

void initialise_kokkos(std::int64_t num_threads, bool warnings, std::int64_t device) {
  METRO_REQUIRE(num_threads >= 1 && num_threads <= std::numeric_limits<int>::max(), std::to_string(num_threads));
  METRO_REQUIRE(device >= 0 && device <= std::numeric_limits<int>::max(), std::to_string(device));
  METRO_REQUIRE(!Kokkos::is_initialized(), "Kokkos is already initialised");
  try {
    initialise(host_backend_has_threads() ? static_cast<int>(num_threads) : 1, warnings, static_cast<int>(device));
  } catch (const std::exception& failure) {
    throw Error(ExitCode::machine, kokkos_description() + " does not start: " + failure.what());
  }
  start_queue(static_cast<int>(device));
}

void finalise_kokkos() {
  if (Kokkos::is_initialized()) {
    stop_queue();
    Kokkos::finalize();
  }
}

std::string kokkos_description() {
  const std::string device = Kokkos::DefaultExecutionSpace::name();
  const std::string host = Kokkos::DefaultHostExecutionSpace::name();
  const int version = KOKKOS_VERSION;
  return "Kokkos " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100) + " (" + (device == host ? host : device + ", " + host) + ")";
}

}  // namespace metro
