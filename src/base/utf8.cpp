#include "base/utf8.hpp"

namespace metro::text {

namespace {

constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}

bool is_ascii(std::uint8_t byte) {
  return byte < 0x80;
}

// Unicode, table 3-7: length of the sequence by its first byte (0: no first byte) and the range of the second byte;
// every further byte is 80..BF.
struct FirstByte {
  std::size_t length;
  std::uint8_t second_low;
  std::uint8_t second_high;
};

FirstByte first_byte(std::uint8_t byte) {
  if (byte < 0xC2 || byte > 0xF4) {
    return {.length = 0, .second_low = 0, .second_high = 0};
  }
  if (byte < 0xE0) {
    return {.length = 2, .second_low = 0x80, .second_high = 0xBF};
  }
  if (byte < 0xF0) {
    const auto low = static_cast<std::uint8_t>(byte == 0xE0 ? 0xA0 : 0x80);
    const auto high = static_cast<std::uint8_t>(byte == 0xED ? 0x9F : 0xBF);
    return {.length = 3, .second_low = low, .second_high = high};
  }
  const auto low = static_cast<std::uint8_t>(byte == 0xF0 ? 0x90 : 0x80);
  const auto high = static_cast<std::uint8_t>(byte == 0xF4 ? 0x8F : 0xBF);
  return {.length = 4, .second_low = low, .second_high = high};
}

}  // namespace

Utf8Sequence sequence_at(std::string_view bytes, std::size_t at) {
  const std::uint8_t first = byte_at(bytes, at);
  if (is_ascii(first)) {
    return {.length = 1, .kind = SequenceKind::complete};
  }
  const FirstByte expected = first_byte(first);
  if (expected.length == 0) {
    return {.length = 1, .kind = SequenceKind::invalid};
  }
  for (std::size_t offset = 1; offset < expected.length; ++offset) {
    if (at + offset == bytes.size()) {
      return {.length = offset, .kind = SequenceKind::truncated};
    }
    const std::uint8_t low = offset == 1 ? expected.second_low : std::uint8_t{0x80};
    const std::uint8_t high = offset == 1 ? expected.second_high : std::uint8_t{0xBF};
    const std::uint8_t byte = byte_at(bytes, at + offset);
    if (byte < low || byte > high) {
      return {.length = offset, .kind = SequenceKind::invalid};
    }
  }
  return {.length = expected.length, .kind = SequenceKind::complete};
}

std::optional<std::size_t> first_invalid_byte(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence sequence = sequence_at(bytes, at);
    if (sequence.kind != SequenceKind::complete) {
      return at;
    }
    at += sequence.length;
  }
  return std::nullopt;
}

void append_with_replacement(std::string_view bytes, Replaced unit, std::string& text) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence sequence = sequence_at(bytes, at);
    const bool is_character = sequence.kind == SequenceKind::complete;
    text += is_character ? bytes.substr(at, sequence.length) : replacement_character;
    // Behind the first byte of a broken sequence only bytes can stand that begin no character.
    at += is_character || unit == Replaced::maximal_subpart ? sequence.length : 1;
  }
}

char32_t character_at(std::string_view utf8, std::size_t at) {
  const std::uint8_t first = byte_at(utf8, at);
  if (is_ascii(first)) {
    return first;
  }
  const std::size_t length = first_byte(first).length;
  char32_t character = first & (0xFFU >> (length + 1));
  for (std::size_t offset = 1; offset < length; ++offset) {
    character = character << 6 | (byte_at(utf8, at + offset) & 0x3FU);
  }
  return character;
}

std::size_t start_of_previous_character(std::string_view utf8, std::size_t end) {
  std::size_t start = end - 1;
  while ((byte_at(utf8, start) & 0xC0U) == 0x80U) {
    --start;
  }
  return start;
}

bool is_white_space(char32_t character) {
  switch (character) {
    case 0x20:
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return (character >= 0x09 && character <= 0x0D) || (character >= 0x2000 && character <= 0x200A);
  }
}

}  // namespace metro::text
