#include "kernels/linear.hpp"

#include "base/error.hpp"
#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using metro::StoredType;
using metro::test::Array;
using metro::test::array_of;
using metro::test::chain;
using metro::test::inputs_for;
using metro::test::Numbers;
using metro::test::part;
using metro::test::random_weights;
using metro::test::same_bits;
using metro::test::Weights;
using metro::test::weights_of;

TEST_CASE("every element of a linear layer is one chain of fused multiply-adds, bit for bit") {
  const StoredType type =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const std::int64_t in = inputs_for(type, GENERATE(1, 7, 18, 33, 259));
  const std::int64_t out = GENERATE(1, 31, 32, 33, 65);
  const std::int64_t num_rows = GENERATE(1, 2, 5, 8);
  const bool has_bias = GENERATE(false, true);
  Numbers numbers(1);
  const Weights weights = random_weights(type, out, in, numbers, has_bias);
  const Array<float> x = numbers.array(num_rows * in);
  Array<float> y = numbers.array(num_rows * out + 1);  // one more than is written
  const float behind = y[num_rows * out];

  metro::linear(x.data(), num_rows, weights.packed, y.data());

  std::vector<float> expected;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t n = 0; n < out; ++n) {
      expected.push_back(chain(x.span().data() + r * in, weights, n));
    }
  }
  CHECK(same_bits(part(y, 0, num_rows * out), expected));
  CHECK(y[num_rows * out] == behind);
}

TEST_CASE("a row gives the same bits alone and in any batch") {
  const StoredType type =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const std::int64_t num_rows = GENERATE(2, 3, 4, 5, 6, 7, 8, 13, 17, 48, 49, 101);
  const std::int64_t in = inputs_for(type, 601);  // several pieces of a panel, the last one odd
  const std::int64_t out = 70;
  Numbers numbers(2);
  const Weights weights = random_weights(type, out, in, numbers);
  const Array<float> x = numbers.array(num_rows * in);
  Array<float> together("y", num_rows * out);
  Array<float> alone("y", out);

  metro::linear(x.data(), num_rows, weights.packed, together.data());

  for (std::int64_t r = 0; r < num_rows; ++r) {
    metro::linear(x.data() + r * in, 1, weights.packed, alone.data());
    REQUIRE(same_bits(part(together, r * out, out), alone.span()));
  }
}

TEST_CASE("a linear layer agrees with double precision within the error of its sum") {
  const StoredType type =
      GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  const std::int64_t in = 2048;
  const std::int64_t out = 40;
  Numbers numbers(3);
  const Weights weights = random_weights(type, out, in, numbers);
  const Array<float> x = numbers.array(in);
  Array<float> y("y", out);

  metro::linear(x.data(), 1, weights.packed, y.data());

  for (std::int64_t n = 0; n < out; ++n) {
    double exact = 0;
    double magnitudes = 0;
    for (std::int64_t k = 0; k < in; ++k) {
      const double term = static_cast<double>(x[k]) * static_cast<double>(weights.at(n, k));
      exact += term;
      magnitudes += std::abs(term);
    }
    const double scale =
        weights.scales.empty() ? 1.0 : static_cast<double>(weights.scales[static_cast<std::size_t>(n)]);
    // in roundings of at most 2^-24, each of a partial sum that the magnitudes bound, and one of the scaled sum.
    CHECK(std::abs(static_cast<double>(y[n]) - exact * scale) <= (in + 1) * 0x1p-24 * magnitudes * scale);
  }
}

TEST_CASE("the identity matrix copies its rows") {
  const StoredType type = GENERATE(StoredType::bf16, StoredType::f32);
  const std::int64_t width = 40;
  std::vector<float> identity(static_cast<std::size_t>(width * width), 0.0F);
  for (std::int64_t i = 0; i < width; ++i) {
    identity[static_cast<std::size_t>(i * (width + 1))] = 1.0F;
  }
  const Weights weights = weights_of(type, width, width, identity);
  const Array<float> x = Numbers(4).array(9 * width);
  Array<float> y("y", 9 * width);

  metro::linear(x.data(), 9, weights.packed, y.data());

  CHECK(same_bits(x.span(), y.span()));
}

TEST_CASE("a linear layer without rows does nothing and one without inputs gives zeros") {
  Numbers numbers(5);
  const Weights weights = random_weights(StoredType::f32, 33, 5, numbers);
  Array<float> y = numbers.array(33);
  const std::vector<float> before(y.span().begin(), y.span().end());

  metro::linear(nullptr, 0, weights.packed, nullptr);
  metro::linear(nullptr, 0, weights.packed, y.data());
  CHECK(same_bits(y.span(), before));

  const Weights no_input = weights_of(StoredType::f32, 33, 0, {});
  metro::linear(nullptr, 1, no_input.packed, y.data());
  CHECK(same_bits(y.span(), std::vector<float>(33, 0.0F)));
}

TEST_CASE("embed returns rows of the table") {
  const StoredType type = GENERATE(StoredType::bf16, StoredType::f32);
  Numbers numbers(6);
  const Weights table = random_weights(type, 70, 18, numbers);
  const Array<std::int32_t> ids = array_of<std::int32_t>({69, 0, 31, 32, 0});
  Array<float> y("y", 5 * 18);

  metro::embed(table.packed, ids.data(), 5, y.data());

  for (std::int64_t r = 0; r < 5; ++r) {
    CHECK(same_bits(part(y, r * 18, 18), std::span(table.values).subspan(static_cast<std::size_t>(ids[r] * 18), 18)));
  }
}

TEST_CASE("a table with scales is no embedding") {
  const StoredType type = GENERATE(StoredType::int8, StoredType::fp8, StoredType::mxfp4);
  Numbers numbers(9);
  const Weights table = random_weights(type, 40, inputs_for(type, 18), numbers);

  CHECK_THROWS_AS(metro::embed(table.packed, nullptr, 0, nullptr), metro::Bug);
}

TEST_CASE("add sums elementwise") {
  const std::int64_t size = GENERATE(0, 1, 4096, 9001);
  Numbers numbers(7);
  const Array<float> x = numbers.array(size);
  Array<float> y = numbers.array(size);
  std::vector<float> expected;
  for (std::int64_t i = 0; i < size; ++i) {
    expected.push_back(y[i] + x[i]);
  }

  metro::add(x.data(), size, y.data());

  CHECK(same_bits(y.span(), expected));
}

TEST_CASE("gather_rows copies the rows at the offsets in order, also twice and overlapping") {
  const Array<float> x = Numbers(8).array(4 * 3);
  const Array<std::int64_t> offsets = array_of<std::int64_t>({9, 2, 9});
  Array<float> y("y", 3 * 3);

  metro::gather_rows(x.data(), offsets.data(), 3, 3, y.data());

  CHECK(same_bits(part(y, 0, 3), part(x, 9, 3)));
  CHECK(same_bits(part(y, 3, 3), part(x, 2, 3)));
  CHECK(same_bits(part(y, 6, 3), part(x, 9, 3)));
}

TEST_CASE("copy_rows moves rows of 32-bit words from place to place, every bit pattern, and touches nothing else") {
  // Integers that are NaNs as floats, among them signalling ones.
  const Array<std::int32_t> from = array_of<std::int32_t>({0x7f800001, -1, 2, 0x7fffffff, 4, 5, 6, -8388607});
  const Array<std::int64_t> offsets = array_of<std::int64_t>({5, 0, 2});
  Array<std::int32_t> scattered = array_of(std::vector<std::int32_t>(8, 77));
  Array<std::int32_t> strided = array_of(std::vector<std::int32_t>(8, 77));
  Array<std::int32_t> both = array_of(std::vector<std::int32_t>(8, 77));

  metro::copy_rows(from.data(), {.stride = 3}, scattered.data(), {.offsets = offsets.data()}, 3, 2);
  metro::copy_rows(from.data(), {.offsets = offsets.data()}, strided.data(), {.stride = 3}, 3, 2);
  metro::copy_rows(from.data(), {.offsets = offsets.data()}, both.data(), {.offsets = offsets.data()}, 3, 2);
  metro::copy_rows(from.data(), {.stride = 2}, both.data(), {.stride = 2}, 0, 2);

  const auto values = [](const Array<std::int32_t>& array) {
    return std::vector<std::int32_t>(array.span().begin(), array.span().end());
  };
  CHECK(values(scattered) == std::vector<std::int32_t>{0x7fffffff, 4, 6, -8388607, 77, 0x7f800001, -1, 77});
  CHECK(values(strided) == std::vector<std::int32_t>{5, 6, 77, 0x7f800001, -1, 77, 2, 0x7fffffff});
  CHECK(values(both) == std::vector<std::int32_t>{0x7f800001, -1, 2, 0x7fffffff, 77, 5, 6, 77});
}
