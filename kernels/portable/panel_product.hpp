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

// The stored type whose elements are T.
template <class T>
inline constexpr StoredType stored_type_of = sizeof(T) == 1   ? StoredType::int8
                                             : sizeof(T) == 2 ? StoredType::bf16
                                                              : StoredType::f32;

// Calls work(T{}), T being the element of `type`.
template <class F>
void with_element_of(StoredType type, const F& work) {
  switch (type) {
    case StoredType::bf16:
      return work(std::uint16_t{});
    case StoredType::f32:
      return work(float{});
    case StoredType::int8:
      return work(std::int8_t{});
  }
}

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

// Strip strip_idx of the packed matrix `packed` of weights T times x [num_rows, in], 1 <= num_rows <= block_rows. Rows
// beyond num_rows repeat the last one: their results are not used.
template <class T>
KOKKOS_INLINE_FUNCTION void multiply_strip(const float* x, std::int64_t num_rows, const void* packed,
                                           std::int64_t strip_idx, std::int64_t in, StripResult& result) {
  constexpr std::int64_t scale_bytes = panel_bytes(stored_type_of<T>, 0);  // behind the weights of a panel
  const std::int64_t weight_bytes = panel_columns * in * std::int64_t{sizeof(T)};
  const std::int64_t panel_idx = strip_idx * strip_columns / panel_columns;
  const std::int64_t column = strip_idx * strip_columns % panel_columns;
  const char* panel = static_cast<const char*>(packed) + panel_idx * (weight_bytes + scale_bytes);
  const T* weights = reinterpret_cast<const T*>(panel) + column;
  const float* rows[block_rows];
  float sums[block_rows];
  for (std::int64_t r = 0; r < block_rows; ++r) {
    rows[r] = x + (r < num_rows ? r : num_rows - 1) * in;
    sums[r] = 0.0F;
  }
  for (std::int64_t k = 0; k < in; ++k) {
    const float weight = widened(weights[k * panel_columns]);
    for (std::int64_t r = 0; r < block_rows; ++r) {
      sums[r] = fused(rows[r][k], weight, sums[r]);
    }
  }
  if constexpr (scale_bytes > 0) {
    const float scale = reinterpret_cast<const float*>(panel + weight_bytes)[column];
    for (float& sum : sums) {
      sum = sum * scale;
    }
  }
  for (std::int64_t r = 0; r < block_rows; ++r) {
    result.values[r][0] = sums[r];
  }
}

}  // namespace metro::portable
