#include "checkpoint/layout.hpp"

#include <fmt/format.h>

namespace metro::layout {

std::string in_layer(std::int64_t layer, const std::string& name) {
  return fmt::format("/layers/{:03}/{}", layer, name);
}

}  // namespace metro::layout
