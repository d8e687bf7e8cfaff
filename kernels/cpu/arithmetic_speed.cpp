#include "kernels/arithmetic_speed.hpp"

#include "kernels/cpu/simd_form.hpp"
#include "kernels/cpu/team.hpp"

#include <atomic>

namespace metro {

std::int64_t run_multiply_adds(std::int64_t num_steps) {
  const cpu::SimdForm& form = cpu::simd_form();
  static std::atomic<float> sink = 0.0F;  // or a compiler would not compute at all
  cpu::run_threads(num_kernel_threads(), [&](std::int64_t /*thread_idx*/) { sink = form.multiply_add(num_steps); });
  return num_kernel_threads() * num_steps * form.flops_of_step;
}

}  // namespace metro
