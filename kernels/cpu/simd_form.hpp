// The inner loops of the kernels on a CPU, in one form per SIMD level. Every form computes each sum by fused
// multiply-adds in ascending order of the reduction index, so all give the same bits. A form is a file (simd_*.cpp)
// that compiles the loops (*_body.hpp) for its own instructions.
#pragma once

#include "kernels/cpu/head_product.hpp"
#include "kernels/cpu/strip_product.hpp"

#include <cstdint>

namespace metro::cpu {

struct SimdForm {
  std::int64_t largest_tile = 0;  // rows whose sums fit into the registers
  // Panels whose sums fit into the registers at the same time for so many rows: worth multiplying at once.
  std::int64_t (*panels_at_once)(std::int64_t num_rows) = nullptr;
  void (*multiply_bf16)(const StripProduct&) = nullptr;
  void (*multiply_f32)(const StripProduct&) = nullptr;
  void (*multiply_int8)(const StripProduct&) = nullptr;
  void (*multiply_fp8)(const StripProduct&) = nullptr;
  void (*multiply_mxfp4)(const StripProduct&) = nullptr;
  // num_steps steps of flops_of_step operations in registers, see kernels/arithmetic_speed.hpp.
  float (*multiply_add)(std::int64_t num_steps) = nullptr;
  std::int64_t flops_of_step = 0;
  void (*multiply_heads)(const HeadProduct&) = nullptr;
};

// nullptr: this build does not have the form.
const SimdForm* scalar_form();
const SimdForm* avx2_form();
const SimdForm* avx512_form();

// The form of the level in use.
const SimdForm& simd_form();

}  // namespace metro::cpu
