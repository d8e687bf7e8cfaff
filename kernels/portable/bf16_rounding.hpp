// Rounding to bf16, as IEEE 754 asks of a narrower format. Includes no Kokkos.
#pragma once

#include "kernels/portable/math.hpp"

#include <cstdint>

namespace metro::portable {

// To the nearest bf16, ties to even; beyond the largest it is infinity, NaN stays NaN (quiet).
METRO_HOST_DEVICE_FORCE_INLINE std::uint16_t rounded_to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {  // adding to a NaN could carry into the sign
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace metro::portable
