#include "base/error.hpp"

#include <algorithm>

namespace metro {

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  return text;
}

void throw_bug(const char* file, int line, const char* expression, const std::string& detail) {
  throw Bug(std::string(file) + ":" + std::to_string(line) + ": broken invariant (" + expression + "): " + detail);
}

}  // namespace metro
