// Eight floats in a register, for the host form. The compiler's vector types carry loads, stores and conversions; only
// the fused multiply-add needs the instruction by name, since the compiler must not contract a * b + c by itself.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace metro::portable {

inline constexpr int num_lanes = 8;

using Lanes = float __attribute__((vector_size(num_lanes * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(num_lanes * sizeof(std::uint32_t))));

inline Lanes broadcast(float x) {
  return Lanes{x, x, x, x, x, x, x, x};
}

inline Lanes load(const float* source) {
  Lanes lanes;
  std::memcpy(&lanes, source, sizeof lanes);
  return lanes;
}

inline void store(const Lanes& lanes, float* destination) {
  std::memcpy(destination, &lanes, sizeof lanes);
}

// a * b + c with one rounding, in every lane.
inline Lanes fused(const Lanes& a, const Lanes& b, const Lanes& c) {
#if defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  Lanes result;
  for (int lane = 0; lane < num_lanes; ++lane) {
    result[lane] = std::fma(a[lane], b[lane], c[lane]);
  }
  return result;
#endif
}

// 16 neighbouring weights, widened. f32: lanes 0..7 and 8..15. bf16: the even ones and the odd ones, because that takes
// one shift and one mask; in_column_order() undoes it once, when a sum is complete.
struct WeightPair {
  Lanes first;
  Lanes second;
};

inline WeightPair widen(const float* weights) {
  return {load(weights), load(weights + num_lanes)};
}

inline WeightPair widen(const std::uint16_t* weights) {
  static_assert(std::endian::native == std::endian::little);
  Words words;
  std::memcpy(&words, weights, sizeof words);
  const Words even = words << 16;
  const Words odd = words & 0xffff0000U;
  return {std::bit_cast<Lanes>(even), std::bit_cast<Lanes>(odd)};
}

inline WeightPair in_column_order(const WeightPair& pair, const float* /*stored as*/) {
  return pair;
}

inline WeightPair in_column_order(const WeightPair& pair, const std::uint16_t* /*stored as*/) {
  return {__builtin_shufflevector(pair.first, pair.second, 0, 8, 1, 9, 2, 10, 3, 11),
          __builtin_shufflevector(pair.first, pair.second, 4, 12, 5, 13, 6, 14, 7, 15)};
}

}  // namespace metro::portable
