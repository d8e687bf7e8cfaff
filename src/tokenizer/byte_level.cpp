#include "tokenizer/byte_level.hpp"

#include "base/utf8.hpp"

#include <array>

namespace metro::text {

namespace {

// Printable Latin-1 characters spell themselves; the other 68 bytes, ascending, are U+0100, U+0101, ...
constexpr int num_shifted = 68;

constexpr bool spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> byte_to_character{};
  std::array<int, 256 + num_shifted> character_to_byte{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.character_to_byte.fill(-1);
  int num_seen = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = spells_itself(byte) ? byte : 256 + num_seen++;
    alphabet.byte_to_character[static_cast<std::size_t>(byte)] = static_cast<char32_t>(character);
    alphabet.character_to_byte[static_cast<std::size_t>(character)] = byte;
  }
  return alphabet;
}

constexpr Alphabet alphabet = make_alphabet();

}  // namespace

std::string spelling_of_byte(std::uint8_t byte) {
  const char32_t character = alphabet.byte_to_character[byte];
  if (character < 0x80) {
    return {static_cast<char>(character)};
  }
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size(); at += sequence_at(spelling, at).length) {
    const char32_t character = character_at(spelling, at);
    if (character >= alphabet.character_to_byte.size() || alphabet.character_to_byte[character] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(alphabet.character_to_byte[character]);
  }
  return bytes;
}

}  // namespace metro::text
