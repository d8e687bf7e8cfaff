// What the inner loops of the kernels (*_body.hpp) share. They are written once over a struct `Simd` of vector
// operations and included by one .cpp file per SIMD level, each compiled for its own instructions: everything in them
// has internal linkage and nothing of the standard library is called, so that no function compiled for a better CPU can
// end up in code that runs on a lesser one.
//
// Simd offers: Vector, lanes, largest_tile (rows), widest_tile (rows for which all columns of a panel fit at once),
// most_sums (vectors of sums that are held for several panels at a time), load, store, broadcast, fused (a * b + c, one
// rounding), product, widen (2 * lanes neighbouring weights -> two vectors: f32 and int8 in order, bf16 the even and
// the odd ones, which takes one shift and one mask) and in_column_order, which undoes the latter once, when a sum is
// complete.
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

}  // namespace
}  // namespace metro::cpu
