// How weights are stored in a checkpoint and in memory. Arithmetic is always fp32; weights are widened in registers.
#pragma once

#include <bit>
#include <cstdint>

namespace metro {

enum class StoredType : std::int32_t { bf16 = 0, f32 = 1 };

constexpr std::int64_t bytes_of(StoredType type) {
  return type == StoredType::bf16 ? 2 : 4;
}
constexpr const char* name_of(StoredType type) {
  return type == StoredType::bf16 ? "bf16" : "f32";
}

// Exact: a bf16 is the upper half of a float.
constexpr float widen_bf16(std::uint16_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16);
}

}  // namespace metro
