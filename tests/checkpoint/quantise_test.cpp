// The rule of int8 weights, against the same rule in double precision and its error bound.
#include "checkpoint/quantise.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace {

struct Quantised {
  std::vector<float> scales;
  std::vector<std::int8_t> integers;
};

Quantised quantise(const std::vector<float>& rows, std::size_t num_rows) {
  Quantised result{std::vector<float>(num_rows, -1.0F), std::vector<std::int8_t>(rows.size(), 99)};
  metro::quantise_rows(rows, result.scales, result.integers);
  return result;
}

std::vector<float> random_row(std::size_t length, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> row;
  for (std::size_t i = 0; i < length; ++i) {
    const float size = std::ldexp(1.0F, -static_cast<int>(generator() % 12));
    row.push_back(size * (static_cast<float>(generator() >> 8) * 0x1p-23F - 1.0F));
  }
  return row;
}

}  // namespace

TEST_CASE("weights go to the nearest multiple of the scale, ties to the even one") {
  const Quantised result = quantise({127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.49F, -126.5F, -0.0F}, 1);

  CHECK(result.scales == std::vector{1.0F});
  CHECK(result.integers == std::vector<std::int8_t>{127, 0, 2, 2, 0, -2, 0, -126, 0});
}

TEST_CASE("every row has the scale of its own largest weight, which becomes 127 or -127") {
  const Quantised result = quantise({1.0F, -2.0F, 254.0F, 127.0F, 0.0F, -0.0F}, 3);

  CHECK(result.scales == std::vector{2.0F / 127.0F, 2.0F, 0.0F});
  CHECK(result.integers == std::vector<std::int8_t>{64, -127, 127, 64, 0, 0});
}

TEST_CASE("scales and integers are those of the rule in double precision, rounded to float after each step") {
  const std::uint32_t seed = GENERATE(1U, 2U, 3U);
  const std::vector<float> row = random_row(1001, seed);

  const Quantised result = quantise(row, 1);

  double most = 0;
  for (const float weight : row) {
    most = std::max(most, std::abs(static_cast<double>(weight)));
  }
  // Of a quotient of floats, rounding to double first changes nothing.
  const auto scale = static_cast<float>(most / 127.0);
  CHECK(result.scales[0] == scale);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto quotient = static_cast<float>(static_cast<double>(row[i]) / static_cast<double>(scale));
    CHECK(static_cast<double>(result.integers[i]) == std::nearbyint(static_cast<double>(quotient)));
  }
}

TEST_CASE("a weight and what stands for it differ by at most half a scale, up to rounding") {
  const std::uint32_t seed = GENERATE(4U, 5U, 6U);
  const std::vector<float> row = random_row(1001, seed);

  const Quantised result = quantise(row, 1);

  const auto scale = static_cast<double>(result.scales[0]);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double error = static_cast<double>(row[i]) - scale * static_cast<double>(result.integers[i]);
    CHECK(std::abs(error) <= (0.5 + 0x1p-16) * scale);
  }
}

TEST_CASE("rows of the largest and of the smallest floats stay within -127..127") {
  const float largest = std::numeric_limits<float>::max();
  const Quantised huge = quantise({largest, -largest, 0.0F}, 1);
  CHECK(huge.integers == std::vector<std::int8_t>{127, -127, 0});

  // 190 * 2^-149 / 127 rounds to 2^-149: the largest quotient would be 190.
  const Quantised small = quantise({190 * 0x1p-149F, -190 * 0x1p-149F, 0x1p-149F}, 1);
  CHECK(small.scales == std::vector{0x1p-149F});
  CHECK(small.integers == std::vector<std::int8_t>{127, -127, 1});

  // The scale underflows.
  const Quantised least = quantise({63 * 0x1p-149F, -0x1p-149F}, 1);
  CHECK(least.scales == std::vector{0.0F});
  CHECK(least.integers == std::vector<std::int8_t>{0, 0});
}

TEST_CASE("results that do not fit the rows are a bug") {
  const std::vector<float> rows(6);
  std::vector<float> scales(4);
  std::vector<std::int8_t> integers(6);

  CHECK_THROWS_AS(metro::quantise_rows(rows, scales, integers), metro::Bug);
  CHECK_THROWS_AS(metro::quantise_rows(rows, std::span(scales).first(2), std::span(integers).first(5)), metro::Bug);
}
