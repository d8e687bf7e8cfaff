#include "tokenizer/token_decoder.hpp"

#include "tokenizer/byte_level.hpp"
#include "tokenizer/normalizer.hpp"

#include <charconv>
#include <cstdint>
#include <optional>

namespace metro::text {

namespace {

// The byte of "<0x0A>".
std::optional<std::uint8_t> fallback_byte(const std::string& token) {
  constexpr std::size_t length = 6;
  if (token.size() != length || !token.starts_with("<0x") || !token.ends_with('>')) {
    return std::nullopt;
  }
  const char* const digits_end = token.data() + length - 1;
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, digits_end, byte, 16);
  return error == std::errc() && end == digits_end ? std::optional(byte) : std::nullopt;
}

}  // namespace

std::string decoded_bytes(const std::string& token, const DecoderRules& rules) {
  if (rules.byte_level) {
    return bytes_of_spelling(token).value_or(token);
  }
  std::string text = token;
  for (const auto& [pattern, content] : rules.replacements) {
    text = with_text_replaced(text, pattern, content);
  }
  if (const auto byte = rules.byte_fallback ? fallback_byte(text) : std::nullopt) {
    return std::string(1, static_cast<char>(*byte));
  }
  return text;
}

}  // namespace metro::text
