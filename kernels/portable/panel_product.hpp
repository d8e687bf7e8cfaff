// A block of rows times one strip of a packed matrix: the inner loop of linear() and expert_ffn().
// A strip is what one work item computes: a whole panel in the host form, one column of it in the device form.
#pragma once

#include "kernels/packed_matrix.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"
#if !METRO_DEVICE_FORM
#include "kernels/portable/lanes.hpp"
#endif

#include <bit>
#include <cstdint>
#include <cstring>

namespace metro::portable {

inline constexpr std::int64_t strip_columns = device_form ? 1 : panel_columns;
// Rows of a work item. Host: a panel is read once per block, and 48 rows of x stay in the second-level cache. Device:
// what a thread holds in registers.
inline constexpr std::int64_t block_rows = device_form ? 4 : 48;

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

#if METRO_DEVICE_FORM

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

#else

inline constexpr int pairs_per_strip = static_cast<int>(strip_columns) / (2 * num_lanes);
inline constexpr int largest_tile = 6;  // rows

// A piece of a panel, `depth` steps of k, and the rows and sums it is multiplied into.
template <class T>
struct Piece {
  const float* x;  // [*, in]
  std::int64_t in;
  const T* weights;
  std::int64_t depth;
  float (*sums)[strip_columns];
  const T* ahead;  // weights to be brought into the cache meanwhile: one step of them
  int pace;        // in every 2^pace steps of the loop
};

// Continues the sums of num_rows rows and num_pairs * 16 columns, all sums in registers.
template <int num_rows, int num_pairs, class T>
inline void multiply_tile(const Piece<T>& piece, int first_pair) {
  float* sums = piece.sums[0] + first_pair * 2 * num_lanes;
  Lanes held[num_rows][2 * num_pairs];
  for (int r = 0; r < num_rows; ++r) {
    for (int i = 0; i < 2 * num_pairs; ++i) {
      held[r][i] = load(sums + r * strip_columns + i * num_lanes);
    }
  }
  for (std::int64_t k = 0; k < piece.depth; ++k) {
    const T* row = piece.weights + k * panel_columns;
    const T* ahead = piece.ahead + (k >> piece.pace) * panel_columns;
    for (std::int64_t i = 0; i < panel_columns; i += 64 / static_cast<std::int64_t>(sizeof(T))) {
      __builtin_prefetch(ahead + i);  // one per cache line
    }
    for (int pair = 0; pair < num_pairs; ++pair) {
      const WeightPair weight = widen(row + (first_pair + pair) * 2 * num_lanes);
      for (int r = 0; r < num_rows; ++r) {
        const Lanes value = broadcast(piece.x[r * piece.in + k]);
        held[r][2 * pair] = fused(value, weight.first, held[r][2 * pair]);
        held[r][2 * pair + 1] = fused(value, weight.second, held[r][2 * pair + 1]);
      }
    }
  }
  for (int r = 0; r < num_rows; ++r) {
    for (int i = 0; i < 2 * num_pairs; ++i) {
      store(held[r][i], sums + r * strip_columns + i * num_lanes);
    }
  }
}

// 16 columns.
template <class T>
inline void multiply_half(const Piece<T>& piece, std::int64_t num_rows, int first_pair) {
  switch (num_rows) {
    case 1:
      return multiply_tile<1, 1>(piece, first_pair);
    case 2:
      return multiply_tile<2, 1>(piece, first_pair);
    case 3:
      return multiply_tile<3, 1>(piece, first_pair);
    case 4:
      return multiply_tile<4, 1>(piece, first_pair);
    case 5:
      return multiply_tile<5, 1>(piece, first_pair);
    default:
      return multiply_tile<largest_tile, 1>(piece, first_pair);
  }
}

// All rows over one piece, in the fewest tiles, of nearly equal size. One or two rows take all columns at once. More
// rows take halves of the panel one after the other: 12 sums, two weights, a value and the mask just fill the 16
// registers of AVX2. The passes share the fetching of the next piece, so that memory is busy all the time.
template <class T>
inline void multiply_piece(Piece<T> piece, std::int64_t num_rows) {
  const std::int64_t tiles = (num_rows + largest_tile - 1) / largest_tile;
  const std::int64_t passes = num_rows <= 2 ? 1 : tiles * pairs_per_strip;
  piece.pace = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(passes))) - 1;
  const T* next_piece = piece.weights + piece.depth * panel_columns;
  const std::int64_t share = (piece.depth >> piece.pace) * panel_columns;
  if (num_rows <= 2) {
    piece.ahead = next_piece;
    return num_rows == 1 ? multiply_tile<1, pairs_per_strip>(piece, 0) : multiply_tile<2, pairs_per_strip>(piece, 0);
  }
  std::int64_t pass = 0;
  for (std::int64_t tiles_left = tiles; tiles_left > 0; --tiles_left) {
    const std::int64_t rows = (num_rows + tiles_left - 1) / tiles_left;
    for (int pair = 0; pair < pairs_per_strip; ++pair, ++pass) {
      const bool all_asked_for = pass >> piece.pace != 0;
      piece.ahead = all_asked_for ? piece.weights : next_piece + pass * share;
      multiply_half(piece, rows, pair);
    }
    num_rows -= rows;
    piece.x += rows * piece.in;
    piece.sums += rows;
  }
}

// x [num_rows, in], 1 <= num_rows <= block_rows. The panel is taken in pieces of 16 KiB, which stay in the first-level
// cache while all rows use them; sums rest in `result` in between.
template <class T>
inline void multiply_strip(const float* x, std::int64_t num_rows, const T* strip, std::int64_t in,
                           StripResult& result) {
  constexpr std::int64_t whole_depth = 16384 / (panel_columns * static_cast<std::int64_t>(sizeof(T)));
  std::memset(result.values, 0, static_cast<std::size_t>(num_rows) * sizeof result.values[0]);
  for (std::int64_t k = 0; k < in; k += whole_depth) {
    const std::int64_t depth = in - k < whole_depth ? in - k : whole_depth;
    multiply_piece<T>({x + k, in, strip + k * panel_columns, depth, result.values, nullptr, 0}, num_rows);
  }
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (int pair = 0; pair < pairs_per_strip; ++pair) {
      float* values = result.values[r] + pair * 2 * num_lanes;
      const WeightPair sums = in_column_order({load(values), load(values + num_lanes)}, strip);
      store(sums.first, values);
      store(sums.second, values + num_lanes);
    }
  }
}

#endif

}  // namespace metro::portable
