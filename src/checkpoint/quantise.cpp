#include "checkpoint/quantise.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>

namespace metro {

namespace {

constexpr float largest = 127.0F;

// Without their sign, the bits of finite floats are in the order of the floats: a maximum that vectorises.
float largest_magnitude(std::span<const float> row) {
  std::uint32_t most = 0;
  for (const float weight : row) {
    most = std::max(most, std::bit_cast<std::uint32_t>(weight) & 0x7fffffffU);
  }
  return std::bit_cast<float>(most);
}

// For |x| <= 127: adding this number leaves no bits for a fraction.
float nearest_integer(float x) {
  constexpr float no_fraction = 0x1.8p23F;
  return (x + no_fraction) - no_fraction;
}

void quantise_row(std::span<const float> row, float scale, std::span<std::int8_t> quantised) {
  if (scale == 0.0F) {
    std::fill(quantised.begin(), quantised.end(), std::int8_t{0});
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    // Rounding is monotone and leaves 127 as it is, so the limits may come first.
    const float quotient = std::min(std::max(row[i] / scale, -largest), largest);
    quantised[i] = static_cast<std::int8_t>(nearest_integer(quotient));
  }
}

}  // namespace

void quantise_rows(std::span<const float> rows, std::span<float> scales, std::span<std::int8_t> quantised) {
  METRO_REQUIRE(quantised.size() == rows.size() && !scales.empty() && rows.size() % scales.size() == 0,
                "one result per weight, one scale per row");
  const std::size_t length = rows.size() / scales.size();
  for (std::size_t row = 0; row < scales.size(); ++row) {
    const auto weights = rows.subspan(row * length, length);
    scales[row] = largest_magnitude(weights) / largest;
    quantise_row(weights, scales[row], quantised.subspan(row * length, length));
  }
}

}  // namespace metro
