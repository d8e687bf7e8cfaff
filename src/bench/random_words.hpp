// Random contents of tensors: the same in every process, and however a tensor is cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace metro {

// Words of 64 bits, of which some bits are random.
struct WordPattern {
  std::uint64_t random_bits;
  std::uint64_t fixed_bits;  // which every word has
};

// The power of two closest to 1 / sqrt(inputs): weights of that size let activations neither grow nor vanish.
std::int64_t exponent_of_weights(std::int64_t inputs);

// Four numbers in bf16 of about 2^exponent: sign and mantissa random.
WordPattern bf16_pattern(std::int64_t exponent);

// Writes the words of `pattern` from word `first` on; the last may be cut short.
void fill_with_words(const WordPattern& pattern, std::uint64_t seed, std::int64_t first, std::span<std::byte> out);

}  // namespace metro
