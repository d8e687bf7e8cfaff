// How weights are stored in a checkpoint and in memory. Arithmetic is always fp32; weights are widened in registers.
#pragma once

#include <bit>
#include <cstdint>

namespace metro {

// int8: integers -127..127, and beside them one fp32 scale per output channel of the linear layer.
enum class StoredType : std::int32_t { bf16 = 0, f32 = 1, int8 = 2 };

// Of one weight, without its share in a scale.
constexpr std::int64_t bytes_of(StoredType type) {
  return type == StoredType::int8 ? 1 : type == StoredType::bf16 ? 2 : 4;
}
constexpr const char* name_of(StoredType type) {
  return type == StoredType::int8 ? "int8" : type == StoredType::bf16 ? "bf16" : "f32";
}

// Exact: a bf16 is the upper half of a float.
constexpr float widen_bf16(std::uint16_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
}

}  // namespace metro
