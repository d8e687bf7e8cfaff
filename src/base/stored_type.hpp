// How weights are stored in a checkpoint and in memory, and which numbers their bits stand for. Arithmetic is always
// fp32; weights are widened in registers.
#pragma once

#include <bit>
#include <cstdint>

namespace metro {

// Three have scales beside them, by which a weight is multiplied:
//   int8   integers -127..127; one fp32 scale per output channel of the linear layer
//   fp8    e4m3 (sign, 4 bits of exponent, 3 of mantissa); one fp32 scale per block of fp8_block outputs and inputs
//   mxfp4  e2m1, two to a byte, the first in the lower half; one power of two per output and mxfp4_block inputs
enum class StoredType : std::int32_t { bf16 = 0, f32 = 1, int8 = 2, fp8 = 3, mxfp4 = 4 };

inline constexpr std::int64_t fp8_block = 128;
inline constexpr std::int64_t mxfp4_block = 32;

constexpr std::int64_t bits_of(StoredType type) {
  switch (type) {
    case StoredType::bf16:
      return 16;
    case StoredType::f32:
      return 32;
    case StoredType::int8:
    case StoredType::fp8:
      return 8;
    case StoredType::mxfp4:
      return 4;
  }
  return 0;
}
// Of so many weights, without their scales; of mxfp4 an even number.
constexpr std::int64_t bytes_of(StoredType type, std::int64_t num_weights) {
  return num_weights * bits_of(type) / 8;
}
constexpr const char* name_of(StoredType type) {
  switch (type) {
    case StoredType::bf16:
      return "bf16";
    case StoredType::f32:
      return "f32";
    case StoredType::int8:
      return "int8";
    case StoredType::fp8:
      return "fp8";
    case StoredType::mxfp4:
      return "mxfp4";
  }
  return "";
}
constexpr bool has_scales(StoredType type) {
  return type == StoredType::int8 || type == StoredType::fp8 || type == StoredType::mxfp4;
}

// Exact: a bf16 is the upper half of a float.
constexpr float widen_bf16(std::uint16_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
}

// Exact. The bits of a small float are laid out alike, so that only the exponent's zero is another one, also of
// subnormal numbers. Of e4m3 0x7f and 0xff are NaN, and not asked for here.
constexpr float widen_e4m3(std::uint8_t code) {
  const float magnitude = std::bit_cast<float>((code & 0x7fU) << 20) * 0x1p120F;
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}
// code: 0 .. 15.
constexpr float widen_e2m1(std::uint32_t code) {
  const float magnitude = std::bit_cast<float>((code & 0x7U) << 22) * 0x1p126F;
  return (code & 0x8U) != 0 ? -magnitude : magnitude;
}

// The scale of mxfp4 weights as stored, and what it stands for: 2^exponent. With the largest exponent the largest
// weight, 6, is still a finite float.
inline constexpr std::int32_t least_mxfp4_exponent = -127;
inline constexpr std::int32_t largest_mxfp4_exponent = 125;
constexpr float power_of_two(std::int32_t exponent) {  // -127 .. 127
  return exponent == -127 ? 0x1p-127F : std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

}  // namespace metro
