#include "bench/random_words.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace metro {

std::int64_t exponent_of_weights(std::int64_t inputs) {
  return -std::lround(std::log2(static_cast<double>(inputs)) / 2);
}

WordPattern bf16_pattern(std::int64_t exponent) {
  const auto biased = static_cast<std::uint64_t>(127 + exponent) << 7;
  return {0x807f807f807f807fU, biased * 0x0001000100010001U};
}

// The word at each place comes from that place alone, so that pieces may be of any size.
void fill_with_words(const WordPattern& pattern, std::uint64_t seed, std::int64_t first, std::span<std::byte> out) {
  const std::uint64_t start = seed + static_cast<std::uint64_t>(first);
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t bits = (start + i / sizeof(std::uint64_t)) * 0x9e3779b97f4a7c15U;
    bits = (bits ^ (bits >> 32)) * 0xd6e8feb86659fd93U;
    const std::uint64_t word = ((bits ^ (bits >> 32)) & pattern.random_bits) | pattern.fixed_bits;
    std::memcpy(out.data() + i, &word, std::min(sizeof word, out.size() - i));
  }
}

}  // namespace metro
