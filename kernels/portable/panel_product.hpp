// A block of rows times one panel of one or two packed matrices, by a team: the inner product of linear() and of the
// experts on a device. The form for CPUs is in kernels/cpu.
//
// A weight is read from memory once for a block of rows, and reading is what takes the time. The sum of an element is
// one chain, so the threads that add up are as few as there are columns, too few to keep the memory busy. Hence the two
// are apart: all threads of a team copy a tile of weights, 16 bytes at a time and several of those under way per
// thread, to the memory they share, and then each continues its sums from there. How many bytes are under way on a
// GPU is worked out in docs/gpu_kernels.md.
#pragma once

#include "kernels/packed_matrix.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/math.hpp"

#include <cstdint>

namespace metro::portable {

// Rows that share one reading of the weights.
inline constexpr std::int64_t block_rows = 8;

KOKKOS_INLINE_FUNCTION constexpr std::int64_t num_panels(std::int64_t out) {
  return (out + panel_columns - 1) / panel_columns;
}

KOKKOS_INLINE_FUNCTION constexpr std::int64_t num_row_blocks(std::int64_t num_rows) {
  return (num_rows + block_rows - 1) / block_rows;
}

// What a panel of elements T is made of. A thread reads the weights of two columns at a time as one Pair.
template <class T, StoredType stored>
struct NeighbouringColumns {
  static constexpr StoredType type = stored;
  static constexpr std::int64_t tile_depth = 8192 / (panel_columns * std::int64_t{sizeof(T)});
  struct alignas(2 * sizeof(T)) Pair {
    T columns[2];
  };
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t column(std::int64_t pair, std::int64_t i) {
    return 2 * pair + i;
  }
  KOKKOS_INLINE_FUNCTION static float first(const Pair& pair) { return widened(pair.columns[0]); }
  KOKKOS_INLINE_FUNCTION static float second(const Pair& pair) { return widened(pair.columns[1]); }
};
template <class T>
struct PanelElements;
template <>
struct PanelElements<std::uint16_t> : NeighbouringColumns<std::uint16_t, StoredType::bf16> {};
template <>
struct PanelElements<float> : NeighbouringColumns<float, StoredType::f32> {};
template <>
struct PanelElements<std::int8_t> : NeighbouringColumns<std::int8_t, StoredType::int8> {};
template <>
struct PanelElements<E4m3> : NeighbouringColumns<E4m3, StoredType::fp8> {
  KOKKOS_INLINE_FUNCTION static float first(const Pair& pair) { return widened_e4m3(pair.columns[0].bits); }
  KOKKOS_INLINE_FUNCTION static float second(const Pair& pair) { return widened_e4m3(pair.columns[1].bits); }
};
// The two halves of a byte; halves of the weights.
template <>
struct PanelElements<E2m1Pair> {
  static constexpr StoredType type = StoredType::mxfp4;
  static constexpr std::int64_t tile_depth = 256;
  using Pair = E2m1Pair;
  KOKKOS_INLINE_FUNCTION static constexpr std::int64_t column(std::int64_t pair, std::int64_t i) {
    return pair + i * (panel_columns / 2);
  }
  KOKKOS_INLINE_FUNCTION static float first(const Pair& pair) { return half_of_e2m1(pair.bits); }
  KOKKOS_INLINE_FUNCTION static float second(const Pair& pair) {
    return half_of_e2m1(static_cast<std::uint32_t>(pair.bits) >> 4);
  }
};

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
    case StoredType::fp8:
      return work(E4m3{});
    case StoredType::mxfp4:
      return work(E2m1Pair{});
  }
}

// How a panel lies in memory, but for the type of its weights.
struct PanelForm {
  std::int64_t in;
  bool has_bias;
};

// T: element of the matrices, which have one shape.
template <class T, int num_matrices>
class PanelProduct {
  static_assert(num_matrices == 1 || num_matrices == 2);
  struct alignas(16) Piece {
    std::uint32_t words[4];
  };
  using Elements = PanelElements<T>;
  using Pair = typename Elements::Pair;
  struct alignas(16) Quad {
    float k[4];
  };
  static constexpr StoredType type = Elements::type;
  static constexpr std::int64_t tile_depth = Elements::tile_depth;
  static constexpr std::int64_t tile_bytes = panel_weight_bytes(type, tile_depth);  // of each matrix
  static constexpr std::int64_t tile_pieces = tile_bytes / std::int64_t{sizeof(Piece)};
  static constexpr std::int64_t x_stride = tile_depth + 4;  // rows that are read together lie in different banks
  static constexpr std::int64_t num_pairs = panel_columns / 2;
  static constexpr std::int64_t sums_of_matrix = block_rows * panel_columns;
  // Steps of the reduction with the same scales.
  static constexpr std::int64_t block_depth = type == StoredType::fp8     ? fp8_block
                                              : type == StoredType::mxfp4 ? mxfp4_block
                                                                          : tile_depth;
  static_assert(tile_depth % block_depth == 0);

 public:
  // A thread adds up two columns of two rows: with a full block every thread has its own.
  static constexpr TeamShape shape = {num_matrices * static_cast<int>(num_pairs * block_rows / 2),
                                      num_matrices* tile_bytes + block_rows* x_stride* std::int64_t{sizeof(float)} +
                                          num_matrices* sums_of_matrix* std::int64_t{sizeof(float)} +
                                          block_rows* std::int64_t{sizeof(float*)}};

  KOKKOS_FUNCTION explicit PanelProduct(const Team& team) : team_(team) {
    auto* memory = static_cast<char*>(team.shared(shape.shared_bytes));
    tiles_ = reinterpret_cast<Piece*>(memory);
    x_ = reinterpret_cast<float*>(memory + num_matrices * tile_bytes);
    sums_ = x_ + block_rows * x_stride;
    rows_ = reinterpret_cast<const float**>(sums_ + num_matrices * sums_of_matrix);
  }

  // Panel panel_idx of each matrix times rows 0 .. num_rows - 1 at row_of(r), panels.in floats each; 1 <= num_rows <=
  // block_rows. Afterwards every thread may ask for every sum().
  template <class RowOf>
  KOKKOS_FUNCTION void multiply(const void* const (&matrices)[num_matrices], std::int64_t panel_idx,
                                const PanelForm& form, std::int64_t num_rows, const RowOf& row_of) {
    const std::int64_t in = form.in;
    const std::int64_t weight_bytes = panel_weight_bytes(type, in);
    const std::int64_t scale_bytes = panel_scale_bytes(type, in);
    const char* panels[num_matrices];
    for (int m = 0; m < num_matrices; ++m) {
      panels[m] = static_cast<const char*>(matrices[m]) + panel_idx * panel_bytes(type, in, form.has_bias);
    }
    for_each_element(team_, num_rows, [&](std::int64_t r) { rows_[r] = row_of(r); });
    team_.barrier();
    std::int64_t first = 0;
    do {
      const std::int64_t depth = in - first < tile_depth ? in - first : tile_depth;
      load(panels, first, depth, num_rows);
      team_.barrier();
      const std::int64_t row_pairs = (num_rows + 1) / 2;
      const std::int64_t num_groups = num_matrices * row_pairs * num_pairs;
      for (std::int64_t group = team_.rank(); group < num_groups; group += team_.size()) {
        const std::int64_t matrix = group < row_pairs * num_pairs ? 0 : 1;
        const std::int64_t row = (group / num_pairs - matrix * row_pairs) * 2;
        const RowPair rows = {row, row + 1 < num_rows ? row + 1 : row};
        const char* scales = panel_of(panels, matrix) + weight_bytes;
        continue_sums(matrix, rows, group % num_pairs, depth, first, scales);
        if (first + depth == in) {
          finish_sums(matrix, rows, group % num_pairs, scales, form.has_bias ? scales + scale_bytes : nullptr);
        }
      }
      team_.barrier();
      first += depth;
    } while (first < in);
  }

  KOKKOS_FUNCTION float sum(int matrix, std::int64_t row, std::int64_t column) const {
    return sums_[matrix * sums_of_matrix + row * panel_columns + column];
  }

 private:
  struct RowPair {
    std::int64_t a, b;
  };

  // A choice between constants: an array with a variable index would leave the registers.
  KOKKOS_FUNCTION static const char* panel_of(const char* const (&panels)[num_matrices], std::int64_t matrix) {
    return matrix == 0 ? panels[0] : panels[num_matrices - 1];
  }

  // Weights and inputs k = first .. first + depth - 1.
  KOKKOS_FUNCTION void load(const char* const (&panels)[num_matrices], std::int64_t first, std::int64_t depth,
                            std::int64_t num_rows) const {
    const std::int64_t pieces = panel_weight_bytes(type, depth) / std::int64_t{sizeof(Piece)};
    const std::int64_t skipped_bytes = panel_weight_bytes(type, first);
    copy_by_team(
        team_, num_matrices * pieces,
        [&](std::int64_t i) {
          const std::int64_t matrix = i < pieces ? 0 : 1;
          return reinterpret_cast<const Piece*>(panel_of(panels, matrix) + skipped_bytes)[i - matrix * pieces];
        },
        [&](std::int64_t i, const Piece& piece) {
          const std::int64_t matrix = i < pieces ? 0 : 1;
          tiles_[matrix * tile_pieces + i - matrix * pieces] = piece;
        });
    copy_by_team(
        team_, num_rows * tile_depth,
        [&](std::int64_t i) {
          const std::int64_t k = i % tile_depth;
          return k < depth ? rows_[i / tile_depth][first + k] : 0.0F;
        },
        [&](std::int64_t i, float value) { x_[i / tile_depth * x_stride + i % tile_depth] = value; });
  }

  struct TwoScales {
    float first, second;
  };
  // Of the two columns of a pair. block: in the tile; k: its first step, in the panel.
  KOKKOS_FUNCTION static TwoScales block_scales(const Pair* block, std::int64_t pair, std::int64_t k,
                                                const char* scales) {
    if constexpr (type == StoredType::fp8) {
      const float scale = reinterpret_cast<const float*>(scales)[k / fp8_block];
      return {scale, scale};
    } else if constexpr (type == StoredType::mxfp4) {
      const std::int8_t* exponents = reinterpret_cast<const std::int8_t*>(block + block_depth * num_pairs);
      return {double_of_power(exponents[Elements::column(pair, 0)]),
              double_of_power(exponents[Elements::column(pair, 1)])};
    } else {
      return {1.0F, 1.0F};
    }
  }

  // Two columns of two rows, which may be the same; scales: behind the weights of the panel.
  KOKKOS_FUNCTION void continue_sums(std::int64_t matrix, RowPair rows, std::int64_t pair, std::int64_t depth,
                                     std::int64_t first, const char* scales) const {
    const char* const tile = reinterpret_cast<const char*>(tiles_ + matrix * tile_pieces);
    float* sums_a = sums_ + matrix * sums_of_matrix + rows.a * panel_columns;
    float* sums_b = sums_ + matrix * sums_of_matrix + rows.b * panel_columns;
    constexpr std::int64_t one = Elements::column(1, 1) - Elements::column(1, 0);
    const std::int64_t column = Elements::column(pair, 0);
    float a0 = first == 0 ? 0.0F : sums_a[column];
    float a1 = first == 0 ? 0.0F : sums_a[column + one];
    float b0 = first == 0 ? 0.0F : sums_b[column];
    float b1 = first == 0 ? 0.0F : sums_b[column + one];
    for (std::int64_t begin = 0; begin < depth; begin += block_depth) {
      const std::int64_t steps = depth - begin < block_depth ? depth - begin : block_depth;
      const Pair* block = reinterpret_cast<const Pair*>(tile + panel_weight_bytes(type, begin));
      const Pair* weights = block + pair;
      const float* x_a = x_ + rows.a * x_stride + begin;
      const float* x_b = x_ + rows.b * x_stride + begin;
      const TwoScales of_columns = block_scales(block, pair, first + begin, scales);
      const auto add = [&](const Pair& both, float of_a, float of_b) {
        float w0 = Elements::first(both);
        float w1 = Elements::second(both);
        if constexpr (type == StoredType::fp8 || type == StoredType::mxfp4) {
          w0 = w0 * of_columns.first;
          w1 = w1 * of_columns.second;
        }
        a0 = fused(of_a, w0, a0);
        a1 = fused(of_a, w1, a1);
        b0 = fused(of_b, w0, b0);
        b1 = fused(of_b, w1, b1);
      };
      std::int64_t k = 0;
      for (; k + 4 <= steps; k += 4) {
        const Quad of_a = *reinterpret_cast<const Quad*>(x_a + k);
        const Quad of_b = *reinterpret_cast<const Quad*>(x_b + k);
        for (std::int64_t j = 0; j < 4; ++j) {
          add(weights[(k + j) * num_pairs], of_a.k[j], of_b.k[j]);
        }
      }
      for (; k < steps; ++k) {
        add(weights[k * num_pairs], x_a[k], x_b[k]);
      }
    }
    sums_a[column] = a0;
    sums_a[column + one] = a1;
    sums_b[column] = b0;
    sums_b[column + one] = b1;
  }

  // scales: behind the weights of a panel, which int8 have per column; biases: nullptr if there are none.
  KOKKOS_FUNCTION void finish_sums(std::int64_t matrix, RowPair rows, std::int64_t pair, const char* scales,
                                   const char* biases) const {
    for (std::int64_t i = 0; i < (rows.a == rows.b ? 1 : 2); ++i) {
      float* sums = sums_ + matrix * sums_of_matrix + (i == 0 ? rows.a : rows.b) * panel_columns;
      for (std::int64_t of_pair = 0; of_pair < 2; ++of_pair) {
        const std::int64_t column = Elements::column(pair, of_pair);
        if constexpr (type == StoredType::int8) {
          sums[column] = sums[column] * reinterpret_cast<const float*>(scales)[column];
        }
        if (biases != nullptr) {
          sums[column] = sums[column] + reinterpret_cast<const float*>(biases)[column];
        }
      }
    }
  }

  const Team& team_;
  Piece* tiles_;        // [num_matrices, tile_depth, panel_columns] weights
  float* x_;            // [block_rows, x_stride]
  float* sums_;         // [num_matrices, block_rows, panel_columns]
  const float** rows_;  // [block_rows]
};

}  // namespace metro::portable
