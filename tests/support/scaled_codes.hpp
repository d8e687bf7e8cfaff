// What the codes of fp8 and mxfp4 weights stand for, by their definitions and in double precision: not what the program
// does with their bits.
#pragma once

#include <cmath>

namespace metro::test {

// e4m3: sign, 4 bits of exponent with bias 7, 3 bits of mantissa; without infinities.
inline double e4m3_value(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15U);
  const int mantissa = static_cast<int>(code & 7U);
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128U) != 0 ? -size : size;
}

// e2m1: sign, 2 bits of exponent with bias 1, 1 bit of mantissa.
inline double e2m1_value(unsigned code) {
  constexpr double sizes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8U) != 0 ? -sizes[code & 7U] : sizes[code & 7U];
}

}  // namespace metro::test
