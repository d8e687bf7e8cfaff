// Eight floats in a register, for the host form. The compiler's vector types carry loads, stores and conversions; only
// the fused multiply-add needs the instruction by name, since the compiler must not contract a * b + c by itself.
#pragma once

#include <cmath>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace metro::portable {

inline constexpr int num_lanes = 8;

using Lanes = float __attribute__((vector_size(num_lanes * sizeof(float))));

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

}  // namespace metro::portable
