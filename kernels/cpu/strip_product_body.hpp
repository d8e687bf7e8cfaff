// The strip product: panels side by side where registers allow, else one after the other. See simd_body.hpp.
#pragma once

#include "kernels/cpu/one_panel_body.hpp"
#include "kernels/cpu/side_by_side_body.hpp"
#include "kernels/cpu/strip_product.hpp"

namespace metro::cpu {
namespace {

template <class T>
constexpr bool is_int8 = false;
template <>
constexpr bool is_int8<std::int8_t> = true;

// Every sum of a panel times the scale of its column, scales [panel_columns].
template <class Simd>
void scale_sums(const float* scales, std::int64_t num_rows, float* sums) {
  for (std::int64_t column = 0; column < panel_columns; column += Simd::lanes) {
    const auto scale = Simd::load(scales + column);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      float* destination = sums + r * panel_columns + column;
      Simd::store(Simd::product(Simd::load(destination), scale), destination);
    }
  }
}

// Multiplies one or more of the panels from first_panel on; returns how many.
template <class Simd, class T>
std::int64_t multiply_next(const StripProduct& product, std::int64_t first_panel) {
  const std::int64_t fitting = panels_at_once<Simd>(product.num_rows);
  const std::int64_t left = product.num_panels - first_panel;
  if (fitting == 4 && left >= 4) {
    multiply_rows_side_by_side<Simd, 4, rows_side_by_side<Simd>(4), T>(product, first_panel);
    return 4;
  }
  if (fitting >= 2 && left >= 2) {
    multiply_rows_side_by_side<Simd, 2, rows_side_by_side<Simd>(2), T>(product, first_panel);
    return 2;
  }
  multiply_panel<Simd, T>(product, first_panel);
  return 1;
}

template <class Simd, class T>
void multiply_strip(const StripProduct& product) {
  for (std::int64_t panel = 0; panel < product.num_panels;) {
    panel += multiply_next<Simd, T>(product, panel);
  }
  for (std::int64_t panel = 0; panel < product.num_panels; ++panel) {
    if constexpr (splits_columns<T>) {
      for (std::int64_t i = 0; i < product.num_rows * num_pairs_of_panel<Simd>; ++i) {
        Simd::in_column_order(product.sums[panel] + i * 2 * Simd::lanes);
      }
    }
    if constexpr (is_int8<T>) {
      const void* scales = static_cast<const T*>(product.panels[panel]) + product.in * panel_columns;
      scale_sums<Simd>(static_cast<const float*>(scales), product.num_rows, product.sums[panel]);
    }
  }
}

}  // namespace
}  // namespace metro::cpu
