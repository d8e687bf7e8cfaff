// UTF-8 one sequence at a time: checking text on the way in, replacing what is no UTF-8 on the way out.
// Damaged bytes are divided into "maximal subparts" (Unicode, section 3.9), as Python and Rust do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace metro::text {

enum class SequenceKind {
  complete,   // a character
  invalid,    // can never become a character; `length` bytes are one error
  truncated,  // the text ends inside of what may be a character
};

struct Utf8Sequence {
  std::size_t length;  // bytes, at least 1
  SequenceKind kind;
};

// The sequence that starts at byte `at` of `bytes`; `at` lies inside of `bytes`.
Utf8Sequence sequence_at(std::string_view bytes, std::size_t at);

// Offset of the first byte that is not valid UTF-8, or nothing.
std::optional<std::size_t> first_invalid_byte(std::string_view bytes);

// What becomes one U+FFFD.
enum class Replaced { maximal_subpart, byte };

// Appends `bytes` to `text`, what is no UTF-8 replaced by U+FFFD.
void append_with_replacement(std::string_view bytes, Replaced unit, std::string& text);

// The character that starts at byte `at` of valid UTF-8.
char32_t character_at(std::string_view utf8, std::size_t at);

// Start of the character that ends before byte `end` (> 0) of valid UTF-8.
std::size_t start_of_previous_character(std::string_view utf8, std::size_t end);

// Unicode property White_Space, the meaning of \s in the tokenizers library.
bool is_white_space(char32_t character);

}  // namespace metro::text
