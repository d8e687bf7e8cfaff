#include "checkpoint/layout.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <string_view>

namespace metro::layout {

namespace {

constexpr std::string_view scale_suffix = "_scale";
constexpr std::string_view bias_suffix = "_bias";

}  // namespace

std::string in_layer(std::int64_t layer, const std::string& name) {
  return fmt::format("/layers/{:03}/{}", layer, name);
}

std::string scale_of(const std::string& dataset) {
  return fmt::format("{}{}", dataset, scale_suffix);
}

bool is_scale(const std::string& dataset) {
  return dataset.ends_with(scale_suffix);
}

std::string bias_of(const std::string& dataset) {
  return fmt::format("{}{}", dataset, bias_suffix);
}

bool is_bias(const std::string& dataset) {
  return dataset.ends_with(bias_suffix);
}

std::string weights_of(const std::string& dataset) {
  METRO_REQUIRE(is_bias(dataset) || is_scale(dataset), dataset);
  return dataset.substr(0, dataset.size() - (is_bias(dataset) ? bias_suffix : scale_suffix).size());
}

}  // namespace metro::layout
