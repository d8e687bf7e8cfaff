// What the launcher left this process of the machine.
#include "mpi_launch/world.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace metro {

std::int64_t num_usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where there are more CPUs than the set holds; then nothing is known of a binding.
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
  }
  return std::max<std::int64_t>(CPU_COUNT(&set), 1);
}

}  // namespace metro
