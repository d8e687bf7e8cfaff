// The alphabet in which byte-level vocabularies are spelled: each of the 256 bytes is one printable character
// (GPT-2's table), so that JSON can hold tokens that are no UTF-8. "Ġthe" spells the bytes of " the".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace metro::text {

// The character (as UTF-8) that spells a byte.
std::string spelling_of_byte(std::uint8_t byte);

// The bytes that a valid UTF-8 text spells, or nothing if some character is not in the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

}  // namespace metro::text
