// Which weights are numbers, and what fp16 means, checked for every 16-bit word.
#include "checkpoint/elements.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using metro::SourceType;

namespace {

// The definition of IEEE binary16: (-1)^s * 2^(e - 15) * (1 + m / 1024), or * 2^-14 * m / 1024 when e is 0.
double value_of_f16(unsigned word) {
  const double sign = (word >> 15) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((word >> 10) & 31);
  const double fraction = (word & 1023) / 1024.0;
  return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15));
}

template <class Word>
std::int64_t first_bad(SourceType type, const std::vector<Word>& words) {
  return metro::find_non_finite(type, std::as_bytes(std::span(words)));
}

}  // namespace

TEST_CASE("every finite fp16 widens to the same number with the same sign") {
  for (unsigned word = 0; word < 65536; ++word) {
    if ((word & 0x7c00) == 0x7c00) {
      continue;
    }
    const float wide = metro::widen_f16(static_cast<std::uint16_t>(word));

    REQUIRE(static_cast<double>(wide) == value_of_f16(word));
    REQUIRE(std::signbit(wide) == (word >> 15 != 0));
  }
}

TEST_CASE("fp16 infinities and NaN stay what they are") {
  CHECK(metro::widen_f16(0x7c00) == std::numeric_limits<float>::infinity());
  CHECK(metro::widen_f16(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(metro::widen_f16(0x7c01)));
}

TEST_CASE("the first element that is no number is found in every type") {
  CHECK(first_bad<std::uint16_t>(SourceType::bf16, {0x3f80, 0x7f7f, 0xff80, 0x7fc0}) == 2);
  CHECK(first_bad<std::uint16_t>(SourceType::f16, {0x3c00, 0x7bff, 0x7f00, 0xfc00}) == 2);
  CHECK(first_bad<float>(SourceType::f32, {1.0F, -std::numeric_limits<float>::max(), NAN}) == 2);
  CHECK(first_bad<float>(SourceType::f32, {1.0F, -INFINITY}) == 1);
}

TEST_CASE("elements that are all numbers have no first bad one") {
  CHECK(first_bad<std::uint16_t>(SourceType::bf16, {0x0001, 0xff7f}) == -1);
  CHECK(first_bad<std::uint16_t>(SourceType::f16, {0x0001, 0xfbff}) == -1);
  CHECK(first_bad<float>(SourceType::f32, {0.0F, 1e-45F}) == -1);
  CHECK(first_bad<float>(SourceType::f32, {}) == -1);
}

TEST_CASE("a row of 16-bit elements widens element by element") {
  const std::vector<std::uint16_t> words = {0x3f80, 0xc000};
  std::vector<float> wide(2);

  metro::widen(SourceType::bf16, std::as_bytes(std::span(words)), std::as_writable_bytes(std::span(wide)));
  CHECK(wide == std::vector{1.0F, -2.0F});
  metro::widen(SourceType::f16, std::as_bytes(std::span(words)), std::as_writable_bytes(std::span(wide)));
  CHECK(wide == std::vector{1.875F, -2.0F});
}
