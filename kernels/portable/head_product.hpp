// The products of attention (kernels/cpu/head_product.hpp) by a team.
#pragma once

#include "kernels/cpu/head_product.hpp"
#include "kernels/portable/kokkos_compat.hpp"

#include <cstdint>

namespace metro::portable {

using cpu::HeadProduct;

#if METRO_DEVICE_FORM

// One column at a time.
KOKKOS_INLINE_FUNCTION void multiply_column(const HeadProduct& p, std::int64_t head, std::int64_t column) {
  float* destination = p.c + head * p.c_stride + column;
  float sum = p.from_zero ? 0.0F : *destination;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    sum = fused(p.a.data[head * p.a.stride + k], p.b.data[k * p.b.stride + column], sum);
  }
  *destination = sum;
}

// Columns are shared among the team. No barrier.
KOKKOS_INLINE_FUNCTION void multiply_heads(const Team& team, const HeadProduct& p) {
  for (std::int64_t column = team.rank(); column < p.columns; column += team.size()) {
    for (std::int64_t head = 0; head < p.num_heads; ++head) {
      multiply_column(p, head, column);
    }
  }
}

#else

inline void multiply_heads(const Team& /*one thread*/, const HeadProduct& p) {
  cpu::multiply_heads(p);
}

#endif

}  // namespace metro::portable
