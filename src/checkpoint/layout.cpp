#include "checkpoint/layout.hpp"

#include <fmt/format.h>

namespace metro::layout {

namespace {

constexpr const char* scale_suffix = "_scale";

}  // namespace

std::string in_layer(std::int64_t layer, const std::string& name) {
  return fmt::format("/layers/{:03}/{}", layer, name);
}

std::string scale_of(const std::string& dataset) {
  return dataset + scale_suffix;
}

bool is_scale(const std::string& dataset) {
  return dataset.ends_with(scale_suffix);
}

}  // namespace metro::layout
