// A block of rows times one strip of a packed matrix: the inner loop of linear() and expert_ffn() on a device. A strip
// is what one thread computes: one column. The form for CPUs is in kernels/cpu.
#pragma once

#include "kernels/packed_matrix.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <cstdint>

namespace metro::portable {

inline constexpr std::int64_t strip_columns = 1;
// Rows of a work item: what a thread holds in registers.
inline constexpr std::int64_t block_rows = 4;

// Results of a work item, columns in order.
struct StripResult {
  alignas(64) float values[block_rows][strip_columns];
};

KOKKOS_INLINE_FUNCTION constexpr std::int64_t num_strips(std::int64_t out) {
  return (out + panel_columns - 1) / panel_columns * (panel_columns / strip_columns);
}

KOKKOS_INLINE_FUNCTION constexpr std::int64_t num_row_blocks(std::int64_t num_rows) {
  return (num_rows + block_rows - 1) / block_rows;
}

// Where strip strip_idx of a packed matrix begins; its weights for consecutive k are panel_columns elements apart.
template <class T>
KOKKOS_INLINE_FUNCTION const T* strip_begin(const void* packed, std::int64_t in, std::int64_t strip_idx) {
  const std::int64_t column = strip_idx * strip_columns;
  return static_cast<const T*>(packed) + column / panel_columns * panel_columns * in + column % panel_columns;
}

// x [num_rows, in], 1 <= num_rows <= block_rows. Rows beyond num_rows repeat the last one: their results are not used.
template <class T>
KOKKOS_INLINE_FUNCTION void multiply_strip(const float* x, std::int64_t num_rows, const T* strip, std::int64_t in,
                                           StripResult& result) {
  const float* rows[block_rows];
  float sums[block_rows];
  for (std::int64_t r = 0; r < block_rows; ++r) {
    rows[r] = x + (r < num_rows ? r : num_rows - 1) * in;
    sums[r] = 0.0F;
  }
  for (std::int64_t k = 0; k < in; ++k) {
    const float weight = widened(strip[k * panel_columns]);
    for (std::int64_t r = 0; r < block_rows; ++r) {
      sums[r] = fused(rows[r][k], weight, sums[r]);
    }
  }
  for (std::int64_t r = 0; r < block_rows; ++r) {
    result.values[r][0] = sums[r];
  }
}

}  // namespace metro::portable
