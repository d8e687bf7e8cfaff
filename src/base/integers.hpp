// Small integer helpers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metro {

// Sizes and indices are signed here; containers want them unsigned.
constexpr std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// a / b rounded up; a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace metro
