// A block of rows times one or several panels of packed matrices: the inner loop of linear() and expert_ffn() on a CPU,
// in one form per SIMD level. Every form computes each sum by fused multiply-adds in ascending order of the reduction
// index, so all give the same bits.
#pragma once

#include "kernels/packed_matrix.hpp"

#include <cstdint>

namespace metro::cpu {

// Most rows of a block: a panel is read once for all of them, and their inputs stay in the second-level cache.
inline constexpr std::int64_t block_rows = 64;

// Most panels of one product. Memory gives more when several stretches of it are read at a time.
inline constexpr std::int64_t most_panels = 4;

struct StripProduct {
  const float* x = nullptr;              // the rows in tiles, see row_tiles.hpp
  std::int64_t num_rows = 0;             // 1 .. block_rows
  std::int64_t in = 0;                   // reduction length
  std::int64_t num_panels = 0;           // 1 .. most_panels, all of the same length
  const void* panels[most_panels] = {};  // with their scales
  float* sums[most_panels] = {};         // results, of each panel [num_rows, panel_columns], columns in order
};

// Rows of the next tile when num_rows are left: the fewest tiles, of nearly equal size.
constexpr std::int64_t rows_of_tile(std::int64_t num_rows, std::int64_t largest_tile) {
  const std::int64_t tiles = (num_rows + largest_tile - 1) / largest_tile;
  return (num_rows + tiles - 1) / tiles;
}

}  // namespace metro::cpu
