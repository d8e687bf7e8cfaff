// A few rows times several panels at the same time, all sums in registers. See simd_body.hpp.
#pragma once

#include "kernels/cpu/simd_body.hpp"
#include "kernels/cpu/strip_product.hpp"

namespace metro::cpu {
namespace {

// Of several panels at a time, which the hardware fetches ahead of as well, each in its own stretch of memory.
constexpr std::int64_t side_bytes = 2048;

template <class Simd, class T, int num_panels>
struct ScalesSideBySide;
template <class Simd, class T>
struct ScalesSideBySide<Simd, T, 2> {
  ScalesSideBySide(const T* const* panels, std::int64_t in, std::int64_t k)
      : of_panel{{panels[0], in, k, 0}, {panels[1], in, k, 0}} {}
  BlockScales<Simd, T, num_pairs_of_panel<Simd>> of_panel[2];
};
template <class Simd, class T>
struct ScalesSideBySide<Simd, T, 4> {
  ScalesSideBySide(const T* const* panels, std::int64_t in, std::int64_t k)
      : of_panel{{panels[0], in, k, 0}, {panels[1], in, k, 0}, {panels[2], in, k, 0}, {panels[3], in, k, 0}} {}
  BlockScales<Simd, T, num_pairs_of_panel<Simd>> of_panel[4];
};

// The whole reduction for num_rows rows, one tile, and num_panels panels at the same time.
template <class Simd, int num_rows, int num_panels, class T>
void multiply_side_by_side(const StripProduct& product, std::int64_t first_panel) {
  using Vector = typename Simd::Vector;
  constexpr int pairs = num_pairs_of_panel<Simd>;
  constexpr std::int64_t ahead = side_bytes / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t step_elements = elements_of_step<T>;
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
  // The weights of a block lie in a row, from block[p] on.
  const T* block[num_panels];
  const auto multiply_step = [&](std::int64_t k, std::int64_t step, const auto& scales) __attribute__((always_inline)) {
    METRO_UNROLL
    for (int p = 0; p < num_panels; ++p) {
      METRO_UNROLL
      for (int pair = 0; pair < pairs; ++pair) {
        Vector first;
        Vector second;
        widen_columns<Simd>(block[p] + step * step_elements, pair, first, second);
        scales.of_panel[p].apply(pair, first, second);
        METRO_UNROLL
        for (int r = 0; r < num_rows; ++r) {
          const Vector value = Simd::broadcast(product.x[(k + step) * num_rows + r]);
          held[p][r][2 * pair] = Simd::fused(value, first, held[p][r][2 * pair]);
          held[p][r][2 * pair + 1] = Simd::fused(value, second, held[p][r][2 * pair + 1]);
        }
      }
    }
  };
  std::int64_t k = 0;
  while (k < product.in) {
    const std::int64_t left = product.in - k;
    const std::int64_t depth = block_depth<T> == 0 || left < block_depth<T> ? left : block_depth<T>;
    METRO_UNROLL
    for (int p = 0; p < num_panels; ++p) {
      block[p] = step_at<T>(panels[p], k);
    }
    const ScalesSideBySide<Simd, T, num_panels> scales(panels, product.in, k);
    std::int64_t step = 0;
    for (; step + 2 <= depth; step += 2) {
      METRO_UNROLL
      for (int p = 0; p < num_panels; ++p) {
        for (std::int64_t i = 0; i < 2 * step_elements; i += weights_of_line) {
          __builtin_prefetch(block[p] + step * step_elements + ahead + i, 0, 3);
        }
      }
      multiply_step(k, step, scales);
      multiply_step(k, step + 1, scales);
    }
    if (step < depth) {
      multiply_step(k, step, scales);
    }
    k += depth;
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
