#include "checkpoint/elements.hpp"

#include "base/error.hpp"
#include "base/stored_type.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace metro {

static_assert(std::endian::native == std::endian::little, "weights are used in the byte order of the files");

namespace {

constexpr std::size_t block_elements = 4096;

// A number with all exponent bits set is an infinity or a NaN.
template <class Word>
std::int64_t find_full_exponent(std::span<const std::byte> elements, Word exponent_mask) {
  const auto is_full = [&](std::size_t idx) {
    Word word;
    std::memcpy(&word, elements.data() + idx * sizeof(Word), sizeof(Word));
    return (word & exponent_mask) == exponent_mask;
  };
  // In blocks: without a way out of the inner loop the compiler uses vector instructions, which keep up with memory.
  const std::size_t num_elements = elements.size() / sizeof(Word);
  for (std::size_t first = 0; first < num_elements; first += block_elements) {
    const std::size_t end = std::min(num_elements, first + block_elements);
    Word found = 0;
    for (std::size_t idx = first; idx < end; ++idx) {
      found = static_cast<Word>(found | static_cast<Word>(is_full(idx)));
    }
    if (found != 0) {
      while (!is_full(first)) {
        ++first;
      }
      return static_cast<std::int64_t>(first);
    }
  }
  return -1;
}

}  // namespace

std::int64_t find_non_finite(SourceType type, std::span<const std::byte> elements) {
  METRO_REQUIRE(!has_scales(type) && elements.size() % static_cast<std::size_t>(bytes_of(type, 1)) == 0,
                "whole elements");
  switch (type) {
    case SourceType::bf16:
      return find_full_exponent<std::uint16_t>(elements, 0x7f80);
    case SourceType::f16:
      return find_full_exponent<std::uint16_t>(elements, 0x7c00);
    case SourceType::f32:
      return find_full_exponent<std::uint32_t>(elements, 0x7f800000);
    case SourceType::e4m3:
    case SourceType::e2m1:
      break;
  }
  return -1;
}

float widen_f16(std::uint16_t word) {
  const std::uint32_t sign = (word & 0x8000U) << 16;
  const std::uint32_t exponent = (word >> 10) & 0x1fU;
  const std::uint32_t mantissa = word & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, a normal fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

void widen(SourceType type, std::span<const std::byte> elements, std::span<std::byte> wide) {
  METRO_REQUIRE(!has_scales(type) && wide.size() * static_cast<std::size_t>(bytes_of(type, 1)) == 4 * elements.size(),
                "4 bytes per element");
  if (type == SourceType::f32) {
    std::memcpy(wide.data(), elements.data(), elements.size());
    return;
  }
  for (std::size_t idx = 0; idx < elements.size() / 2; ++idx) {
    std::uint16_t word = 0;
    std::memcpy(&word, elements.data() + 2 * idx, sizeof(word));
    const float value = type == SourceType::bf16 ? widen_bf16(word) : widen_f16(word);
    std::memcpy(wide.data() + 4 * idx, &value, sizeof(value));
  }
}

void round_to_bf16(std::span<const float> values, std::span<std::uint16_t> words) {
  METRO_REQUIRE(words.size() == values.size(), "one word per value");
  for (std::size_t idx = 0; idx < values.size(); ++idx) {
    const auto bits = std::bit_cast<std::uint32_t>(values[idx]);
    words[idx] = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
}

}  // namespace metro
