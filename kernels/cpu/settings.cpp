// SIMD level and threads of the kernels on a CPU.
#include "base/error.hpp"
#include "kernels/cpu/simd_form.hpp"
#include "kernels/cpu_settings.hpp"

#include <array>
#include <string>

namespace metro {

namespace {

constexpr std::array levels = {SimdLevel::scalar, SimdLevel::avx2, SimdLevel::avx512};

const cpu::SimdForm* form_of_level(SimdLevel level) {
  switch (level) {
    case SimdLevel::avx512:
      return cpu::avx512_form();
    case SimdLevel::avx2:
      return cpu::avx2_form();
    case SimdLevel::scalar:
      break;
  }
  return cpu::scalar_form();
}

bool can_run([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  switch (level) {
    case SimdLevel::avx512:
      return __builtin_cpu_supports("avx512f") != 0;
    case SimdLevel::avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case SimdLevel::scalar:
      break;
  }
#endif
  return true;
}

struct Settings {
  SimdLevel level = best_simd_level();
  const cpu::SimdForm* form = form_of_level(level);
  std::int64_t num_threads = 1;
  std::int64_t least_bytes = 1;
};

Settings& settings() {
  static Settings value;
  return value;
}

}  // namespace

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::avx512:
      return "avx512";
    case SimdLevel::avx2:
      return "avx2";
    case SimdLevel::scalar:
      break;
  }
  return "scalar";
}

SimdLevel simd_level_of(std::string_view name) {
  if (name == "auto") {
    return best_simd_level();
  }
  for (const SimdLevel level : levels) {
    if (name == name_of(level)) {
      return level;
    }
  }
  throw Error(ExitCode::usage, "SIMD level " + one_line(std::string(name)) + ": must be auto, avx512, avx2 or scalar");
}

SimdLevel best_simd_level() {
  SimdLevel best = SimdLevel::scalar;
  for (const SimdLevel level : levels) {
    if (form_of_level(level) != nullptr && can_run(level)) {
      best = level;
    }
  }
  return best;
}

SimdLevel simd_level() {
  return settings().level;
}

void set_simd_level(SimdLevel level) {
  METRO_REQUIRE(level <= best_simd_level(), name_of(level));
  settings().level = level;
  settings().form = form_of_level(level);
}

std::int64_t num_kernel_threads() {
  return settings().num_threads;
}

std::int64_t least_bytes_of_thread() {
  return settings().least_bytes;
}

void set_num_kernel_threads(std::int64_t num_threads, std::int64_t least_bytes) {
  METRO_REQUIRE(num_threads >= 1 && least_bytes >= 1, std::to_string(num_threads) + ", " + std::to_string(least_bytes));
  settings().num_threads = num_threads;
  settings().least_bytes = least_bytes;
}

namespace cpu {

const SimdForm& simd_form() {
  return *settings().form;
}

}  // namespace cpu

}  // namespace metro
