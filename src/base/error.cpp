#include "base/error.hpp"

#include <algorithm>

namespace metro {

std::string excerpt(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) {
    return std::string(text);
  }
  // 10xxxxxx is the inside of a UTF-8 character.
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0U) == 0x80U) {
    --max_bytes;
  }
  return std::string(text.substr(0, max_bytes)) + "...";
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return text;
}

void throw_bug(const char* file, int line, const char* expression, const std::string& detail) {
  throw Bug(std::string(file) + ":" + std::to_string(line) + ": broken invariant (" + expression + "): " + detail);
}

}  // namespace metro
