// Elements of source weights: which of them are numbers, and 16-bit floats as fp32 and back. Little-endian, as in the
// files. Those with a scale per block: checkpoint/scaled_weights.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace metro {

// Types of safetensors weights that can be converted. The last two have scales; e2m1 are two to a byte.
enum class SourceType { bf16, f16, f32, e4m3, e2m1 };

constexpr bool has_scales(SourceType type) {
  return type == SourceType::e4m3 || type == SourceType::e2m1;
}
constexpr std::int64_t bytes_of(SourceType type, std::int64_t num_elements) {
  switch (type) {
    case SourceType::bf16:
    case SourceType::f16:
      return 2 * num_elements;
    case SourceType::f32:
      return 4 * num_elements;
    case SourceType::e4m3:
      return num_elements;
    case SourceType::e2m1:
      return num_elements / 2;
  }
  return 0;
}

// Index of the first NaN or infinity, or -1; of the types without scales.
std::int64_t find_non_finite(SourceType type, std::span<const std::byte> elements);

// Exact: every fp16 and every bf16 is an fp32.
float widen_f16(std::uint16_t word);

// `wide` holds 4 bytes for each element of `elements`; `type` is bf16, f16 or f32, which is copied.
void widen(SourceType type, std::span<const std::byte> elements, std::span<std::byte> wide);

// To the nearest bf16, ties to the even one. All are numbers that do not become infinite.
void round_to_bf16(std::span<const float> values, std::span<std::uint16_t> words);

}  // namespace metro
