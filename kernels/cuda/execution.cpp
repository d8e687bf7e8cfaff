// The Kokkos instance that launches kernels into our stream. Making one allocates memory, so there is one for all.
#include "kernels/portable/execution.hpp"

#include "kernels/portable/kokkos_compat.hpp"

#include <optional>

namespace metro::portable {

#ifdef KOKKOS_ENABLE_CUDA

namespace {

// Never destroyed: after stop_execution() it is empty, and where a program ends without that its destructor would call
// a device runtime that may have ended before it.
std::optional<Execution>& instance() {
  static auto& execution = *new std::optional<Execution>;
  return execution;
}

using TeamPolicy = Kokkos::TeamPolicy<Execution>;

struct NoWork {
  KOKKOS_FUNCTION void operator()(const TeamPolicy::member_type& /*team*/) const {}
};

// With every launch of teams Kokkos (4.1 to 4.6) asks for their scratch in device memory, and, as long as it has none,
// allocates what is asked for, if only 0 bytes. That takes time, and a graph must not record it. A byte ends that.
void allocate_team_scratch() {
  TeamPolicy policy(*instance(), 1, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(1));
  Kokkos::parallel_for("allocate_team_scratch", policy, NoWork{});
}

}  // namespace

void start_execution(void* native_queue) {
  instance().emplace(static_cast<cudaStream_t>(native_queue));
  allocate_team_scratch();
}

void stop_execution() {
  instance().reset();
}

Execution execution() {
  METRO_REQUIRE(instance().has_value(), "start_queue() was not called");
  return *instance();
}

#else

// The queue of the emulated device runs what Kokkos launches on the host.
void start_execution(void* /*native_queue*/) {}
void stop_execution() {}

#endif

}  // namespace metro::portable
