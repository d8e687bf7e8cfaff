// A block of rows times one panel: in one pass where the rows fit into one tile, else in pieces that stay in the
// first-level cache for all tiles. See simd_body.hpp.
#pragma once

#include "kernels/cpu/simd_body.hpp"
#include "kernels/cpu/strip_product.hpp"

namespace metro::cpu {
namespace {

// How far ahead weights are asked for. Panels lie one behind the other, so fetching runs on from the end of one to the
// begin of the next. Measured; see docs/performance.md.
// Of one panel: into the first-level cache, and further into the second, since one core keeps memory busy only with
// more requests under way than its first level can hold.
constexpr std::int64_t near_bytes = 8192;
constexpr std::int64_t far_bytes = 32768;

// `depth` steps of the reduction over a panel, for one tile of rows. T: the weights as they are multiplied; Stored: as
// they lie in the panel.
template <class T, class Stored>
struct Piece {
  const float* x;  // [depth, rows of the tile]
  const T* weights;
  std::int64_t depth;
  float* sums;          // [rows of the tile, panel_columns]
  bool is_first;        // sums begin at 0
  const Stored* ahead;  // fetched meanwhile: one step of a panel in every 2^pace steps, and what lies far ahead of it
  int pace;
  // Of the panel, where weights have scales per block: the piece lies in one.
  const void* panel;
  std::int64_t in, k;  // inputs of the panel, and the first of the piece
};

// Two steps.
template <class T>
void fetch_steps(const T* steps) {
  constexpr std::int64_t far = (far_bytes - near_bytes) / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t weights_of_line = line_bytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < 2 * elements_of_step<T>; i += weights_of_line) {
    __builtin_prefetch(steps + i, 0, 3);
    __builtin_prefetch(steps + i + far, 0, 2);
  }
}

// Continues the sums of num_rows rows and num_pairs * 2 * lanes columns, all in registers.
template <class Simd, int num_rows, int num_pairs, class T, class Stored>
void multiply_tile(const Piece<T, Stored>& piece, int first_pair) {
  using Vector = typename Simd::Vector;
  constexpr int num_vectors = 2 * num_pairs;
  float* sums = piece.sums + first_pair * 2 * Simd::lanes;
  Vector held[num_rows][num_vectors];
  METRO_UNROLL
  for (int r = 0; r < num_rows; ++r) {
    METRO_UNROLL
    for (int i = 0; i < num_vectors; ++i) {
      held[r][i] = piece.is_first ? Simd::broadcast(0.0F) : Simd::load(sums + r * panel_columns + i * Simd::lanes);
    }
  }
  const float* x = piece.x;
  const T* weights = piece.weights;
  const BlockScales<Simd, T, num_pairs> scales(piece.panel, piece.in, piece.k, first_pair);
  const auto multiply_step = [&](int step) __attribute__((always_inline)) {
    METRO_UNROLL
    for (int pair = 0; pair < num_pairs; ++pair) {
      Vector first;
      Vector second;
      widen_columns<Simd>(weights + step * elements_of_step<T>, first_pair + pair, first, second);
      scales.apply(pair, first, second);
      METRO_UNROLL
      for (int r = 0; r < num_rows; ++r) {
        const Vector value = Simd::broadcast(x[step * num_rows + r]);
        held[r][2 * pair] = Simd::fused(value, first, held[r][2 * pair]);
        held[r][2 * pair + 1] = Simd::fused(value, second, held[r][2 * pair + 1]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + 2 <= piece.depth; k += 2) {
    fetch_steps(piece.ahead + (k >> piece.pace) * elements_of_step<Stored>);
    multiply_step(0);
    multiply_step(1);
    x += 2 * num_rows;
    weights += 2 * elements_of_step<T>;
  }
  if (k < piece.depth) {
    multiply_step(0);
  }
  METRO_UNROLL
  for (int r = 0; r < num_rows; ++r) {
    METRO_UNROLL
    for (int i = 0; i < num_vectors; ++i) {
      Simd::store(held[r][i], sums + r * panel_columns + i * Simd::lanes);
    }
  }
}

// Tiles of `rows` rows, a number known at run time only.
template <class Simd, int num_pairs, int num_rows, class T, class Stored>
void multiply_rows(const Piece<T, Stored>& piece, std::int64_t rows, int first_pair) {
  if constexpr (num_rows > 1) {
    if (rows < num_rows) {
      return multiply_rows<Simd, num_pairs, num_rows - 1>(piece, rows, first_pair);
    }
  }
  multiply_tile<Simd, num_rows, num_pairs>(piece, first_pair);
}

// How the rows are passed over a panel.
template <class Simd>
struct Passes {
  explicit Passes(std::int64_t num_rows)
      : all_columns(Simd::widest_tile == Simd::largest_tile || num_rows <= Simd::widest_tile),
        of_tile(all_columns ? 1 : num_pairs_of_panel<Simd>),
        number((num_rows + Simd::largest_tile - 1) / Simd::largest_tile * of_tile) {}

  bool all_columns;  // of the panel at once
  int of_tile;
  std::int64_t number;
};

// All tiles over one piece. The passes share the fetching of the next piece, so that memory is busy all the time.
template <class Simd, class T, class Stored>
void multiply_piece(Piece<T, Stored> piece, const StripProduct& product, const Passes<Simd>& passes, std::int64_t k) {
  const Stored* next_piece = piece.ahead;
  float* sums = piece.sums;
  while (passes.number >> (piece.pace + 1) != 0) {
    ++piece.pace;
  }
  const std::int64_t share = (piece.depth >> piece.pace) * elements_of_step<Stored>;
  std::int64_t pass = 0;
  for (std::int64_t row = 0; row < product.num_rows;) {
    const std::int64_t rows = rows_of_tile(product.num_rows - row, Simd::largest_tile);
    piece.x = product.x + row * product.in + k * rows;
    piece.sums = sums + row * panel_columns;
    for (int i = 0; i < passes.of_tile; ++i, ++pass) {
      const bool all_asked_for = pass >> piece.pace != 0;
      piece.ahead = all_asked_for ? next_piece : next_piece + pass * share;
      if (passes.all_columns) {
        multiply_rows<Simd, num_pairs_of_panel<Simd>, Simd::widest_tile>(piece, rows, 0);
      } else {
        multiply_rows<Simd, 1, Simd::largest_tile>(piece, rows, i);
      }
    }
    row += rows;
  }
}

// Weights of `depth` steps from step k on, which begins a block, as floats in the order of widen().
template <class Simd, class T>
void widen_piece(const StripProduct& product, std::int64_t panel, std::int64_t k, std::int64_t depth, float* widened) {
  constexpr int pairs = num_pairs_of_panel<Simd>;
  const void* const of_panel = product.panels[panel];
  for (std::int64_t first = 0; first < depth;) {
    const std::int64_t block_end = block_depth<T> == 0 ? depth : first + block_depth<T>;
    const std::int64_t end = block_end < depth ? block_end : depth;
    const BlockScales<Simd, T, pairs> scales(of_panel, product.in, k + first, 0);
    const T* step = step_at<T>(of_panel, k + first);
    for (; first < end; ++first, step += elements_of_step<T>) {
      METRO_UNROLL
      for (int pair = 0; pair < pairs; ++pair) {
        typename Simd::Vector even;
        typename Simd::Vector odd;
        widen_columns<Simd>(step, pair, even, odd);
        scales.apply(pair, even, odd);
        Simd::store(even, widened + first * panel_columns + pair * 2 * Simd::lanes);
        Simd::store(odd, widened + first * panel_columns + pair * 2 * Simd::lanes + Simd::lanes);
      }
    }
  }
}

// One pass takes the whole panel, block by block where it has blocks. Several take it in pieces, which stay in the
// first-level cache for all of them; bytes take so much to widen that several tiles of rows share it.
template <class Simd, class T>
void multiply_panel(const StripProduct& product, std::int64_t panel) {
  constexpr std::int64_t near = near_bytes / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t widened_depth = 128;  // whole blocks
  const Passes<Simd> passes(product.num_rows);
  const bool widens_once = sizeof(T) == 1 && passes.number > passes.of_tile;
  const std::int64_t piece_depth = widens_once          ? widened_depth
                                   : block_depth<T> > 0 ? block_depth<T>
                                   : passes.number == 1 ? product.in
                                                        : near / panel_columns;
  const void* const of_panel = product.panels[panel];
  float* sums = product.sums[panel];
  std::int64_t k = 0;
  do {  // once also without any inputs: sums are 0
    const std::int64_t left = product.in - k;
    const std::int64_t depth = left < piece_depth ? left : piece_depth;
    const T* weights = step_at<T>(of_panel, k);
    const bool is_first = k == 0;
    if constexpr (sizeof(T) == 1) {
      if (widens_once) {
        alignas(64) float widened[widened_depth * panel_columns];
        widen_piece<Simd, T>(product, panel, k, depth, widened);
        multiply_piece<Simd, float, T>({nullptr, widened, depth, sums, is_first, weights + near, 0, nullptr, 0, 0},
                                       product, passes, k);
        k += depth;
        continue;
      }
    }
    multiply_piece<Simd, T, T>({nullptr, weights, depth, sums, is_first, weights + near, 0, of_panel, product.in, k},
                               product, passes, k);
    k += depth;
  } while (k < product.in);
}

}  // namespace
}  // namespace metro::cpu
