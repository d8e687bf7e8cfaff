// What the inner loops of the kernels (*_body.hpp) share. They are written once over a struct `Simd` of vector
// operations and included by one .cpp file per SIMD level, each compiled for its own instructions: everything in them
// has internal linkage and nothing of the standard library is called, so that no function compiled for a better CPU can
// end up in code that runs on a lesser one.
//
// Simd offers: Vector, lanes, largest_tile (rows), widest_tile (rows for which all columns of a panel fit at once),
// most_sums (vectors of sums that are held for several panels at a time), load, store, broadcast, fused (a * b + c, one
// rounding), product, widen (2 * lanes neighbouring weights -> two vectors: f32 and int8 in order, bf16 and fp8 the
// even and the odd ones, which takes one shift and one mask; fp8 times 2^-8) and in_column_order, which undoes the
// latter once, when a sum is complete; for mxfp4 widen_pair (2 * lanes weights of one step, in order, halves of them)
// and doubled_powers (of the exponents of their columns).
#pragma once

#include "kernels/packed_matrix.hpp"

#include <cstdint>

// Sums stay in registers only where all loops over them are unrolled.
#if defined(__clang__)
#define METRO_UNROLL _Pragma("clang loop unroll(full)")
#else
#define METRO_UNROLL _Pragma("GCC unroll 32")
#endif

namespace metro::cpu {
namespace {

constexpr std::int64_t line_bytes = 64;

template <class Simd>
constexpr int num_pairs_of_panel = static_cast<int>(panel_columns) / (2 * Simd::lanes);

// T: the element of a panel. A step is one input, for which a panel has a weight per column.
template <class T>
constexpr std::int64_t elements_of_step = panel_columns;
template <>
constexpr std::int64_t elements_of_step<E2m1Pair> = panel_columns / 2;

// Steps with the same scales; 0: there are none, or one per column that waits for the complete sum.
template <class T>
constexpr std::int64_t block_depth = 0;
template <>
constexpr std::int64_t block_depth<E4m3> = fp8_block;
template <>
constexpr std::int64_t block_depth<E2m1Pair> = mxfp4_block;

// Whether widen() gives even and odd columns.
template <class T>
constexpr bool splits_columns = false;
template <>
constexpr bool splits_columns<std::uint16_t> = true;
template <>
constexpr bool splits_columns<E4m3> = true;

// Step k of a panel.
template <class T>
const T* step_at(const void* panel, std::int64_t k) {
  return static_cast<const T*>(panel) + k * elements_of_step<T>;
}
template <>
inline const E2m1Pair* step_at<E2m1Pair>(const void* panel, std::int64_t k) {
  constexpr std::int64_t block_bytes = mxfp4_block * elements_of_step<E2m1Pair> + panel_columns;
  return static_cast<const E2m1Pair*>(panel) + k / mxfp4_block * block_bytes +
         k % mxfp4_block * elements_of_step<E2m1Pair>;
}

// Widens weights `pair` * 2 * lanes and on of a step.
template <class Simd, class T>
inline __attribute__((always_inline)) void widen_columns(const T* step, int pair, typename Simd::Vector& first,
                                                         typename Simd::Vector& second) {
  if constexpr (sizeof(T) == 1 && block_depth<T> == mxfp4_block) {
    Simd::widen_pair(step, pair, first, second);
  } else {
    Simd::widen(step + pair * 2 * Simd::lanes, first, second);
  }
}

// The scales of num_pairs * 2 * lanes columns of a panel, from pair first_pair on, for the block that begins at step k.
template <class Simd, class T, int num_pairs>
struct BlockScales {
  BlockScales(const void* /*panel*/, std::int64_t /*in*/, std::int64_t /*k*/, int /*first_pair*/) {}
  void apply(int /*pair*/, typename Simd::Vector& /*first*/, typename Simd::Vector& /*second*/) const {}
};
template <class Simd, int num_pairs>
struct BlockScales<Simd, E4m3, num_pairs> {
  BlockScales(const void* panel, std::int64_t in, std::int64_t k, int /*first_pair*/) {
    const void* scales = step_at<E4m3>(panel, in);
    // widen() leaves a factor of 2^-8; all of it is exact but the product of weight and scale.
    all = Simd::broadcast(static_cast<const float*>(scales)[k / fp8_block] * 0x1p8F);
  }
  inline __attribute__((always_inline)) void apply(int /*pair*/, typename Simd::Vector& first,
                                                   typename Simd::Vector& second) const {
    first = Simd::product(first, all);
    second = Simd::product(second, all);
  }
  typename Simd::Vector all;
};
template <class Simd, int num_pairs>
struct BlockScales<Simd, E2m1Pair, num_pairs> {
  BlockScales(const void* panel, std::int64_t /*in*/, std::int64_t k, int first_pair) {
    const void* exponents = step_at<E2m1Pair>(panel, k) + mxfp4_block * elements_of_step<E2m1Pair>;
    METRO_UNROLL
    for (int i = 0; i < 2 * num_pairs; ++i) {
      of_columns[i] =
          Simd::doubled_powers(static_cast<const std::int8_t*>(exponents) + (2 * first_pair + i) * Simd::lanes);
    }
  }
  inline __attribute__((always_inline)) void apply(int pair, typename Simd::Vector& first,
                                                   typename Simd::Vector& second) const {
    first = Simd::product(first, of_columns[2 * pair]);
    second = Simd::product(second, of_columns[2 * pair + 1]);
  }
  typename Simd::Vector of_columns[2 * num_pairs];
};

}  // namespace
}  // namespace metro::cpu
