#include "base/error.hpp"

namespace metro {

void throw_bug(const char* file, int line, const char* expression, const std::string& detail) {
  throw Bug(std::string(file) + ":" + std::to_string(line) + ": broken invariant (" + expression + "): " + detail);
}

}  // namespace metro
