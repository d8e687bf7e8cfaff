// All loops of a form, written over a struct `Simd` of vector operations; see simd_body.hpp.
#pragma once

#include "kernels/cpu/head_product_body.hpp"
#include "kernels/cpu/simd_form.hpp"
#include "kernels/cpu/strip_product_body.hpp"

namespace metro::cpu {
namespace {

// Enough sums side by side that none waits for itself, as many as the registers of every form hold.
constexpr int num_chains = 12;

template <class Simd>
float multiply_add(std::int64_t num_steps) {
  using Vector = typename Simd::Vector;
  Vector sums[num_chains];
  METRO_UNROLL
  for (int i = 0; i < num_chains; ++i) {
    sums[i] = Simd::broadcast(static_cast<float>(i));
  }
  const Vector factor = Simd::broadcast(0.5F);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    METRO_UNROLL
    for (int i = 0; i < num_chains; ++i) {
      sums[i] = Simd::fused(sums[i], factor, factor);  // stays below 12
    }
  }
  float values[num_chains * Simd::lanes];
  float sum = 0.0F;
  for (int i = 0; i < num_chains; ++i) {
    Simd::store(sums[i], values + i * Simd::lanes);
    sum += values[i * Simd::lanes];
  }
  return sum;
}

template <class Simd>
constexpr SimdForm form_of = {Simd::largest_tile,
                              panels_at_once<Simd>,
                              multiply_strip<Simd, std::uint16_t>,
                              multiply_strip<Simd, float>,
                              multiply_strip<Simd, std::int8_t>,
                              multiply_strip<Simd, E4m3>,
                              multiply_strip<Simd, E2m1Pair>,
                              multiply_add<Simd>,
                              2 * Simd::lanes* num_chains,
                              multiply_heads_by<Simd>};

}  // namespace
}  // namespace metro::cpu
