// A block of rows times one panel of a packed matrix: the inner loop of linear() and expert_ffn() on a CPU, in one form
// per SIMD level. Every form computes each sum by fused multiply-adds in ascending order of the reduction index, so all
// give the same bits.
#pragma once

#include "kernels/cpu_settings.hpp"
#include "kernels/packed_matrix.hpp"

#include <cstdint>

namespace metro::cpu {

// Most rows of a block: a panel is read once for all of them, and their inputs stay in the second-level cache.
inline constexpr std::int64_t block_rows = 48;

struct StripProduct {
  const float* x = nullptr;     // the rows in tiles, see row_tiles.hpp
  std::int64_t num_rows = 0;    // 1 .. block_rows
  std::int64_t in = 0;          // reduction length
  const void* panel = nullptr;  // of int8 with its scales
  float* sums = nullptr;        // result [num_rows, panel_columns], columns in order
};

struct StripForm {
  std::int64_t largest_tile = 0;  // rows whose sums fit into the registers
  void (*multiply_bf16)(const StripProduct&) = nullptr;
  void (*multiply_f32)(const StripProduct&) = nullptr;
  void (*multiply_int8)(const StripProduct&) = nullptr;
  // num_steps steps of flops_of_step operations in registers, see kernels/arithmetic_speed.hpp.
  float (*multiply_add)(std::int64_t num_steps) = nullptr;
  std::int64_t flops_of_step = 0;
};

// nullptr: this build does not have the form.
const StripForm* scalar_strip_form();
const StripForm* avx2_strip_form();
const StripForm* avx512_strip_form();

// The form of the level in use.
const StripForm& strip_form();

// Rows of the next tile when num_rows are left: the fewest tiles, of nearly equal size.
constexpr std::int64_t rows_of_tile(std::int64_t num_rows, std::int64_t largest_tile) {
  const std::int64_t tiles = (num_rows + largest_tile - 1) / largest_tile;
  return (num_rows + tiles - 1) / tiles;
}

}  // namespace metro::cpu
