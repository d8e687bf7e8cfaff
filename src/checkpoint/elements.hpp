// Elements of source weights: which of them are numbers, and fp16 as fp32. Little-endian, as in the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace metro {

// Types of safetensors weights that can be converted.
enum class SourceType { bf16, f16, f32 };

constexpr std::int64_t bytes_of(SourceType type) {
  return type == SourceType::f32 ? 4 : 2;
}

// Index of the first NaN or infinity, or -1.
std::int64_t find_non_finite(SourceType type, std::span<const std::byte> elements);

// Exact: every fp16 and every bf16 is an fp32.
float widen_f16(std::uint16_t word);

// `wide` holds 4 bytes for each element of `elements`; `type` is bf16 or f16.
void widen(SourceType type, std::span<const std::byte> elements, std::span<std::byte> wide);

}  // namespace metro
