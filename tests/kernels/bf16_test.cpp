#include "kernels/bf16.hpp"

#include "base/stored_type.hpp"
#include "kernel_data.hpp"
#include "kernels/portable/math.hpp"

#include <catch2/catch.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

using metro::widen_bf16;
using metro::test::Array;
using metro::test::array_of;

namespace {

std::vector<std::uint16_t> rounded(const std::vector<float>& values) {
  const Array<float> from = array_of(values);
  Array<std::uint16_t> to("rounded", from.size());
  metro::round_to_bf16(from.data(), from.size(), to.data());
  return {to.span().begin(), to.span().end()};
}

// Every finite bf16 but the largest of each sign.
std::vector<std::uint16_t> words_with_a_next() {
  std::vector<std::uint16_t> words;
  for (std::uint32_t word = 0; word < 0x10000U; ++word) {
    if ((word & 0x7fffU) < 0x7f7fU) {
      words.push_back(static_cast<std::uint16_t>(word));
    }
  }
  return words;
}

}  // namespace

TEST_CASE("halfway between two bf16 the even one is taken, beside that the nearer one") {
  const std::vector<std::uint16_t> words = words_with_a_next();
  std::vector<float> halfway;
  std::vector<float> below;
  std::vector<float> above;
  for (const std::uint16_t word : words) {
    const double a = static_cast<double>(widen_bf16(word));
    const double b = static_cast<double>(widen_bf16(static_cast<std::uint16_t>(word + 1)));
    halfway.push_back(static_cast<float>((a + b) / 2));  // exact
    below.push_back(std::nextafter(halfway.back(), static_cast<float>(a)));
    above.push_back(std::nextafter(halfway.back(), static_cast<float>(b)));
  }

  const std::vector<std::uint16_t> of_halfway = rounded(halfway);
  const std::vector<std::uint16_t> of_below = rounded(below);
  const std::vector<std::uint16_t> of_above = rounded(above);

  std::vector<std::uint16_t> even;
  std::vector<std::uint16_t> next;
  for (const std::uint16_t word : words) {
    even.push_back(static_cast<std::uint16_t>(word + word % 2));
    next.push_back(static_cast<std::uint16_t>(word + 1));
  }
  CHECK(of_halfway == even);
  CHECK(of_below == words);
  CHECK(of_above == next);
}

TEST_CASE("beyond the largest bf16 rounding gives infinity, and NaN stays NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = widen_bf16(0x7f7f);

  CHECK(rounded({std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), infinity, -infinity, largest,
                 -0.0F}) == std::vector<std::uint16_t>{0x7f80, 0xff80, 0x7f80, 0xff80, 0x7f7f, 0x8000});
  for (const std::uint32_t bits : {0x7fc00000U, 0x7f800001U, 0xffffffffU, 0xff800001U}) {
    CHECK(std::isnan(widen_bf16(rounded({std::bit_cast<float>(bits)}).front())));
  }
}

TEST_CASE("widening gives back what rounding left") {
  metro::test::Numbers numbers(1);
  const Array<float> values = numbers.array(5000, 100.0F);
  Array<std::uint16_t> words("words", values.size());
  Array<float> wide("wide", values.size());

  metro::round_to_bf16(values.data(), values.size(), words.data());
  metro::widen_bf16_array(words.data(), words.size(), wide.data());

  std::vector<float> expected;
  for (const std::uint16_t word : words.span()) {
    expected.push_back(widen_bf16(word));
  }
  CHECK(metro::test::same_bits(wide.span(), expected));
  for (std::int64_t i = 0; i < values.size(); ++i) {
    REQUIRE(std::abs(wide[i] - values[i]) <= 0x1p-8F * std::abs(values[i]));
  }
}

TEST_CASE("gate times up is computed in fp32 and rounded once") {
  metro::test::Numbers numbers(2);
  const std::vector<std::uint16_t> up = [&] {
    const Array<float> values = numbers.array(4500, 3.0F);
    return rounded({values.span().begin(), values.span().end()});
  }();
  const Array<float> of_gate = numbers.array(4500, 8.0F);
  const std::vector<std::uint16_t> gate = rounded({of_gate.span().begin(), of_gate.span().end()});
  Array<std::uint16_t> product = array_of(gate);
  const Array<std::uint16_t> factor = array_of(up);

  metro::silu_times_bf16(product.data(), factor.data(), product.size());

  std::vector<float> exact;
  for (std::size_t i = 0; i < up.size(); ++i) {
    exact.push_back(metro::portable::silu(widen_bf16(gate[i])) * widen_bf16(up[i]));
  }
  const std::vector<std::uint16_t> expected = rounded(exact);
  CHECK(std::vector<std::uint16_t>(product.span().begin(), product.span().end()) == expected);
}

TEST_CASE("arrays of no elements are left alone") {
  metro::round_to_bf16(nullptr, 0, nullptr);
  metro::silu_times_bf16(nullptr, nullptr, 0);
  metro::widen_bf16_array(nullptr, 0, nullptr);
}
