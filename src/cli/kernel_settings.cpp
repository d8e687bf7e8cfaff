#include "cli/kernel_settings.hpp"

#include "base/error.hpp"
#include "kernels/cpu_settings.hpp"
#include "mpi_launch/world.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace metro {

void use_simd_level(const std::string& name, const std::string& key, Transport& transport) {
  SimdLevel level = SimdLevel::scalar;
  agree(transport, [&] {
    level = simd_level_of(name);
    if (level > best_simd_level()) {
      throw Error(ExitCode::usage,
                  fmt::format("{} \"{}\": the best that this CPU has is {}", key, name, name_of(best_simd_level())));
    }
  });
  const std::vector<std::int64_t> levels = gather_integers(transport, static_cast<std::int64_t>(level));
  set_simd_level(static_cast<SimdLevel>(*std::min_element(levels.begin(), levels.end())));
}

void warn_of_binding(std::int64_t num_threads, Transport& transport) {
  const std::vector<std::int64_t> cpus = gather_integers(transport, num_usable_cpus());
  const auto fewest = std::min_element(cpus.begin(), cpus.end());
  if (*fewest >= num_threads || transport.rank() != 0) {
    return;
  }
  fmt::print(
      stderr,
      "metro: warning: rank {} has {} threads, but may run on {} CPU{} only: start with mpirun --bind-to none or "
      "--map-by slot:PE={}, or srun --cpus-per-task={}\n",
      fewest - cpus.begin(), num_threads, *fewest, *fewest == 1 ? "" : "s", num_threads, num_threads);
}

}  // namespace metro
