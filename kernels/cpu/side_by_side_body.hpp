// A few rows times several panels at the same time, all sums in registers. See simd_body.hpp.
#pragma once

#include "kernels/cpu/simd_body.hpp"
#include "kernels/cpu/strip_product.hpp"

namespace metro::cpu {
namespace {

// Of several panels at a time, which the hardware fetches ahead of as well, each in its own stretch of memory.
constexpr std::int64_t side_bytes = 2048;

// The whole reduction for num_rows rows, one tile, and num_panels panels at the same time.
template <class Simd, int num_rows, int num_panels, class T>
void multiply_side_by_side(const StripProduct& product, std::int64_t first_panel) {
  using Vector = typename Simd::Vector;
  constexpr int pairs = num_pairs_of_panel<Simd>;
  constexpr std::int64_t ahead = side_bytes / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t weights_of_line = line_bytes / static_cast<std::int64_t>(sizeof(T));
  Vector held[num_panels][num_rows][2 * pairs];
  const T* panels[num_panels];
  METRO_UNROLL
  for (int p = 0; p < num_panels; ++p) {
    panels[p] = static_cast<const T*>(product.panels[first_panel + p]);
    METRO_UNROLL
    for (int r = 0; r < num_rows; ++r) {
      METRO_UNROLL
      for (int i = 0; i < 2 * pairs; ++i) {
        held[p][r][i] = Simd::broadcast(0.0F);
      }
    }
  }
  const auto multiply_step = [&](std::int64_t k) __attribute__((always_inline)) {
    METRO_UNROLL
    for (int p = 0; p < num_panels; ++p) {
      METRO_UNROLL
      for (int pair = 0; pair < pairs; ++pair) {
        Vector first;
        Vector second;
        Simd::widen(panels[p] + k * panel_columns + pair * 2 * Simd::lanes, first, second);
        METRO_UNROLL
        for (int r = 0; r < num_rows; ++r) {
          const Vector value = Simd::broadcast(product.x[k * num_rows + r]);
          held[p][r][2 * pair] = Simd::fused(value, first, held[p][r][2 * pair]);
          held[p][r][2 * pair + 1] = Simd::fused(value, second, held[p][r][2 * pair + 1]);
        }
      }
    }
  };
  std::int64_t k = 0;
  for (; k + 2 <= product.in; k += 2) {
    METRO_UNROLL
    for (int p = 0; p < num_panels; ++p) {
      for (std::int64_t i = 0; i < 2 * panel_columns; i += weights_of_line) {
        __builtin_prefetch(panels[p] + k * panel_columns + ahead + i, 0, 3);
      }
    }
    multiply_step(k);
    multiply_step(k + 1);
  }
  if (k < product.in) {
    multiply_step(k);
  }
  METRO_UNROLL
  for (int p = 0; p < num_panels; ++p) {
    METRO_UNROLL
    for (int r = 0; r < num_rows; ++r) {
      METRO_UNROLL
      for (int i = 0; i < 2 * pairs; ++i) {
        Simd::store(held[p][r][i], product.sums[first_panel + p] + r * panel_columns + i * Simd::lanes);
      }
    }
  }
}

// Rows for which so many panels fit at once.
template <class Simd>
constexpr int rows_side_by_side(int num_panels) {
  return Simd::most_sums / (2 * num_pairs_of_panel<Simd> * num_panels);
}

// The number of rows is known at run time only.
template <class Simd, int num_panels, int num_rows, class T>
void multiply_rows_side_by_side(const StripProduct& product, std::int64_t first_panel) {
  if constexpr (num_rows > 1) {
    if (product.num_rows < num_rows) {
      return multiply_rows_side_by_side<Simd, num_panels, num_rows - 1, T>(product, first_panel);
    }
  }
  if constexpr (num_rows > 0) {
    multiply_side_by_side<Simd, num_rows, num_panels, T>(product, first_panel);
  }
}

template <class Simd>
std::int64_t panels_at_once(std::int64_t num_rows) {
  return num_rows <= rows_side_by_side<Simd>(4) ? 4 : num_rows <= rows_side_by_side<Simd>(2) ? 2 : 1;
}

}  // namespace
}  // namespace metro::cpu
