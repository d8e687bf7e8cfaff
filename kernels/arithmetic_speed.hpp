// Fused multiply-adds and nothing else: what the speed of kernels that compute more than they read is held against.
// On the host.
#pragma once

#include <cstdint>

namespace metro {

// Runs `num_steps` steps of fused multiply-adds in registers on each of num_kernel_threads() threads, at the SIMD level
// in use. Returns how many floating-point operations that were, two for each lane of a fused multiply-add.
std::int64_t run_multiply_adds(std::int64_t num_steps);

}  // namespace metro
