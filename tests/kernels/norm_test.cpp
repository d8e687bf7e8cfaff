#include "kernels/norm.hpp"

#include "base/error.hpp"
#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using metro::test::Array;
using metro::test::Numbers;
using metro::test::part;
using metro::test::same_bits;

TEST_CASE("RMSNorm follows its definition with 16 partial sums, bit for bit") {
  const std::int64_t width = GENERATE(1, 7, 16, 18, 33, 128);
  Numbers numbers(1);
  const Array<float> x = numbers.array(3 * width, 4.0F);
  const Array<float> weight = numbers.array(width);
  Array<float> y("y", 3 * width);

  metro::rms_norm(x.data(), 3, width, weight.data(), 1e-6F, y.data());

  std::vector<float> expected;
  for (std::int64_t r = 0; r < 3; ++r) {
    std::vector<float> partials(16, 0.0F);
    for (std::int64_t i = 0; i < width; ++i) {
      float& partial = partials[static_cast<std::size_t>(i % 16)];
      partial = std::fma(x[r * width + i], x[r * width + i], partial);
    }
    const float scale = 1.0F / std::sqrt(metro::test::tree(partials) / static_cast<float>(width) + 1e-6F);
    for (std::int64_t i = 0; i < width; ++i) {
      expected.push_back((x[r * width + i] * scale) * weight[i]);
    }
  }
  CHECK(same_bits(y.span(), expected));
}

TEST_CASE("RMSNorm agrees with double precision") {
  const std::int64_t width = 2048;
  Numbers numbers(2);
  const Array<float> x = numbers.array(width, 3.0F);
  const Array<float> weight = numbers.array(width);
  Array<float> y("y", width);

  metro::rms_norm(x.data(), 1, width, weight.data(), 1e-5F, y.data());

  double squares = 0;
  for (const float value : x.span()) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
  for (std::int64_t i = 0; i < width; ++i) {
    const double exact = static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]);
    // 128 roundings in each partial sum, halved by the root, and five more.
    CHECK(std::abs(static_cast<double>(y[i]) - exact) <= 70 * 0x1p-24 * std::abs(exact));
  }
}

TEST_CASE("RMSNorm gives a row the same bits alone, in a batch and in place") {
  const std::int64_t width = 100;
  Numbers numbers(3);
  Array<float> x = numbers.array(17 * width);
  const Array<float> weight = numbers.array(width);
  Array<float> together("y", 17 * width);
  Array<float> alone("y", width);

  metro::rms_norm(x.data(), 17, width, weight.data(), 1e-6F, together.data());

  for (std::int64_t r = 0; r < 17; ++r) {
    metro::rms_norm(x.data() + r * width, 1, width, weight.data(), 1e-6F, alone.data());
    CHECK(same_bits(alone.span(), part(together, r * width, width)));
  }
  metro::rms_norm(x.data(), 17, width, weight.data(), 1e-6F, x.data());
  CHECK(same_bits(x.span(), together.span()));
}

TEST_CASE("RMSNorm of equal elements is the weights, and no rows do nothing") {
  const Array<float> x = metro::test::array_of(std::vector<float>(32, 2.0F));
  const Array<float> weight = Numbers(4).array(32);
  Array<float> y("y", 32);

  metro::rms_norm(nullptr, 0, 32, weight.data(), 0.0F, nullptr);
  metro::rms_norm(x.data(), 1, 32, weight.data(), 0.0F, y.data());

  CHECK(same_bits(y.span(), weight.span()));
}

TEST_CASE("LayerNorm follows its definition with 16 partial sums, bit for bit") {
  const std::int64_t width = GENERATE(1, 7, 16, 18, 33, 128);
  Numbers numbers(5);
  const Array<float> x = numbers.array(3 * width, 4.0F);
  const Array<float> weight = numbers.array(width);
  const Array<float> bias = numbers.array(width);
  Array<float> y("y", 3 * width);

  metro::layer_norm(x.data(), 3, width, weight.data(), bias.data(), 1e-5F, y.data());

  std::vector<float> expected;
  for (std::int64_t r = 0; r < 3; ++r) {
    std::vector<float> sums(16, 0.0F);
    std::vector<float> squares(16, 0.0F);
    for (std::int64_t i = 0; i < width; ++i) {
      float& sum = sums[static_cast<std::size_t>(i % 16)];
      sum = sum + x[r * width + i];
    }
    const float mean = metro::test::tree(sums) / static_cast<float>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const float centred = x[r * width + i] - mean;
      float& square = squares[static_cast<std::size_t>(i % 16)];
      square = std::fma(centred, centred, square);
    }
    const float scale = 1.0F / std::sqrt(metro::test::tree(squares) / static_cast<float>(width) + 1e-5F);
    for (std::int64_t i = 0; i < width; ++i) {
      expected.push_back(std::fma((x[r * width + i] - mean) * scale, weight[i], bias[i]));
    }
  }
  CHECK(same_bits(y.span(), expected));
}

TEST_CASE("LayerNorm agrees with double precision, also where the mean is far from 0") {
  const std::int64_t width = 2048;
  const float shift = GENERATE(0.0F, 100.0F);
  Numbers numbers(6);
  std::vector<float> values(static_cast<std::size_t>(width));
  for (float& value : values) {
    value = shift + numbers.next(3.0F);
  }
  const Array<float> x = metro::test::array_of(values);
  const Array<float> weight = numbers.array(width);
  const Array<float> bias = numbers.array(width);
  Array<float> y("y", width);

  metro::layer_norm(x.data(), 1, width, weight.data(), bias.data(), 1e-5F, y.data());

  double mean = 0;
  for (const float value : values) {
    mean += static_cast<double>(value) / static_cast<double>(width);
  }
  double variance = 0;
  for (const float value : values) {
    variance += std::pow(static_cast<double>(value) - mean, 2) / static_cast<double>(width);
  }
  const double scale = 1.0 / std::sqrt(variance + 1e-5);
  for (std::int64_t i = 0; i < width; ++i) {
    const double centred = static_cast<double>(x[i]) - mean;
    const double exact = centred * scale * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
    // The mean: 134 roundings of numbers of its size at most. The rest as in RMSNorm.
    const double of_mean = 134 * 0x1p-24 * (static_cast<double>(shift) + 3.0) * scale;
    CHECK(std::abs(static_cast<double>(y[i]) - exact) <= of_mean + 80 * 0x1p-24 * 4.0);
  }
}

TEST_CASE("LayerNorm gives a row the same bits alone, in a batch and in place") {
  const std::int64_t width = 100;
  Numbers numbers(7);
  Array<float> x = numbers.array(17 * width);
  const Array<float> weight = numbers.array(width);
  const Array<float> bias = numbers.array(width);
  Array<float> together("y", 17 * width);
  Array<float> alone("y", width);

  metro::layer_norm(x.data(), 17, width, weight.data(), bias.data(), 1e-5F, together.data());

  for (std::int64_t r = 0; r < 17; ++r) {
    metro::layer_norm(x.data() + r * width, 1, width, weight.data(), bias.data(), 1e-5F, alone.data());
    CHECK(same_bits(alone.span(), part(together, r * width, width)));
  }
  metro::layer_norm(x.data(), 17, width, weight.data(), bias.data(), 1e-5F, x.data());
  CHECK(same_bits(x.span(), together.span()));
}

TEST_CASE("LayerNorm of equal elements is the bias") {
  const Array<float> x = metro::test::array_of(std::vector<float>(32, 2.0F));
  Numbers numbers(8);
  const Array<float> weight = numbers.array(32);
  const Array<float> bias = numbers.array(32);
  Array<float> y("y", 32);

  metro::layer_norm(nullptr, 0, 32, weight.data(), bias.data(), 1e-5F, nullptr);
  metro::layer_norm(x.data(), 1, 32, weight.data(), bias.data(), 1e-5F, y.data());

  CHECK(same_bits(y.span(), bias.span()));
}

TEST_CASE("a model's norm is the kernel of its kind, and a LayerNorm has a bias") {
  Numbers numbers(9);
  const Array<float> x = numbers.array(2 * 24);
  const Array<float> weight = numbers.array(24);
  const Array<float> bias = numbers.array(24);
  Array<float> by_kind("y", 2 * 24);
  Array<float> directly("y", 2 * 24);
  metro::Norm norm{metro::NormKind::rms, weight.data(), nullptr, 1e-6F};

  metro::apply_norm(norm, x.data(), 2, 24, by_kind.data());
  metro::rms_norm(x.data(), 2, 24, weight.data(), 1e-6F, directly.data());
  CHECK(same_bits(by_kind.span(), directly.span()));

  norm.kind = metro::NormKind::layer;
  CHECK_THROWS_AS(metro::apply_norm(norm, x.data(), 2, 24, by_kind.data()), metro::Bug);

  norm.bias = bias.data();
  metro::apply_norm(norm, x.data(), 2, 24, by_kind.data());
  metro::layer_norm(x.data(), 2, 24, weight.data(), bias.data(), 1e-6F, directly.data());
  CHECK(same_bits(by_kind.span(), directly.span()));
}
