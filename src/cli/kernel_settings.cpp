#include "cli/kernel_settings.hpp"

#include "base/error.hpp"
#include "kernels/cpu_settings.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
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

}  // namespace metro
