// exp, log, sigmoid and silu of our own: the bits of a library's version depend on the machine and its release.
// Straight-line code with explicit fused multiply-adds, which a compiler can put into SIMD lanes without changing a
// bit. Measured errors are in docs/numerics.md; tests/kernels/math_test.cpp holds them. Includes no Kokkos: host units
// use it too.
#pragma once

#include "kernels/cuda/host_device.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace metro::portable {

// a * b + c with one rounding.
METRO_HOST_DEVICE_FORCE_INLINE float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}
METRO_HOST_DEVICE_FORCE_INLINE double fused(double a, double b, double c) {
  return std::fma(a, b, c);
}

// Correctly rounded, as IEEE 754 asks.
METRO_HOST_DEVICE_FORCE_INLINE float square_root(float x) {
  return std::sqrt(x);
}

METRO_HOST_DEVICE_FORCE_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

METRO_HOST_DEVICE_FORCE_INLINE float float_of(std::uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// A stored weight as a float; exact. int8 without its scale.
METRO_HOST_DEVICE_FORCE_INLINE float widened(float weight) {
  return weight;
}
METRO_HOST_DEVICE_FORCE_INLINE float widened(std::uint16_t weight) {
  return float_of(static_cast<std::uint32_t>(weight) << 16);
}
METRO_HOST_DEVICE_FORCE_INLINE float widened(std::int8_t weight) {
  return static_cast<float>(weight);
}
// fp8 without its scale: as widen_e4m3() in base/stored_type.hpp.
METRO_HOST_DEVICE_FORCE_INLINE float widened_e4m3(std::uint8_t code) {
  const float magnitude = float_of((code & 0x7fU) << 20) * 0x1p120F;
  return float_of(bits_of(magnitude) | (code & 0x80U) << 24);
}
// Half of an mxfp4 weight without its scale, whose double is always a normal number; only the last 4 bits count.
METRO_HOST_DEVICE_FORCE_INLINE float half_of_e2m1(std::uint32_t code) {
  const float magnitude = float_of((code & 0x7U) << 22) * 0x1p125F;
  return float_of(bits_of(magnitude) | (code & 0x8U) << 28);
}
// The double of an mxfp4 scale.
METRO_HOST_DEVICE_FORCE_INLINE float double_of_power(std::int8_t exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 128) << 23);
}

// e^x. NaN stays NaN; below -104 it is 0, above 88.72... infinity; subnormal results are rounded once.
METRO_HOST_DEVICE_FORCE_INLINE float exp_of(float x) {
  constexpr float log2_e = 1.44269504F;
  constexpr float ln2_high = 0x1.62e4p-1F;    // 15 bits: n * ln2_high is exact for every n that occurs
  constexpr float ln2_low = 0x1.7f7d1cp-20F;  // ln 2 - ln2_high
  constexpr float round_to_int = 0x1.8p23F;   // adding it leaves the nearest integer in the low bits
  float clamped = x < -104.0F ? -104.0F : x;  // comparisons that are false for NaN
  clamped = clamped > 89.0F ? 89.0F : clamped;

  const float shifted = fused(clamped, log2_e, round_to_int);
  const float n = shifted - round_to_int;
  float r = fused(-n, ln2_high, clamped);
  r = fused(-n, ln2_low, r);

  // Taylor series to r^7; |r| <= 0.35, what is cut off is below 6e-9.
  float q = 1.0F / 5040;
  q = fused(q, r, 1.0F / 720);
  q = fused(q, r, 1.0F / 120);
  q = fused(q, r, 1.0F / 24);
  q = fused(q, r, 1.0F / 6);
  q = fused(q, r, 0.5F);
  const float p = 1.0F + fused(r * r, q, r);

  // 2^n as two factors, so that neither leaves the normal range.
  const std::uint32_t exponent = bits_of(shifted) - bits_of(round_to_int);
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(exponent) >> 1);
  return p * float_of((half + 127U) << 23) * float_of((exponent - half + 127U) << 23);
}

// Natural logarithm. Computed in double, rounded once more at the end. log(0) = -inf, of a negative number NaN.
METRO_HOST_DEVICE float log_of(float x) {
  constexpr double ln2 = 0.693147180559945309417;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (!(x > 0.0F) || x == infinity) {
    return x == 0.0F ? -infinity : (x > 0.0F ? x : std::numeric_limits<float>::quiet_NaN());
  }
  const bool subnormal = x < std::numeric_limits<float>::min();
  const std::uint32_t bits = bits_of(subnormal ? x * 0x1p23F : x);
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const std::uint32_t above = bits - 0x3f3504f3U;
  const std::int32_t e = (static_cast<std::int32_t>(above) >> 23) - (subnormal ? 23 : 0);
  const double m = static_cast<double>(float_of((above & 0x007fffffU) + 0x3f3504f3U));

  // log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: series to s^15.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double q = 1.0 / 15;
  q = fused(q, s2, 1.0 / 13);
  q = fused(q, s2, 1.0 / 11);
  q = fused(q, s2, 1.0 / 9);
  q = fused(q, s2, 1.0 / 7);
  q = fused(q, s2, 1.0 / 5);
  q = fused(q, s2, 1.0 / 3);
  q = fused(q, s2, 1.0);
  return static_cast<float>(fused(static_cast<double>(e), ln2, 2.0 * s * q));
}

// x / (1 + e^-x). Of -infinity it is NaN, as infinity / infinity.
METRO_HOST_DEVICE_FORCE_INLINE float silu(float x) {
  return x / (1.0F + exp_of(-x));
}

// 1 / (1 + e^-x).
METRO_HOST_DEVICE_FORCE_INLINE float sigmoid(float x) {
  return 1.0F / (1.0F + exp_of(-x));
}

}  // namespace metro::portable
