// Rows longer than what a team of a device gathers at a time.
#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/norm.hpp"
#include "kernels/portable/math.hpp"
#include "kernels/sampling.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

using metro::at;
using metro::Mirror;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::same_bits;
using metro::test::values_of;

namespace {

std::vector<float> random_floats(std::int64_t size, float scale, std::uint32_t seed) {
  Numbers numbers(seed);
  std::vector<float> values(at(size));
  for (float& value : values) {
    value = numbers.next(scale);
  }
  return values;
}

}  // namespace

TEST_CASE("RMSNorm of long rows has 16 partial sums, bit for bit") {
  const std::int64_t width = GENERATE(2047, 2048, 2049, 4096, 5003);
  const std::vector<float> x = random_floats(width, 4.0F, 1);
  const std::vector<float> weight = random_floats(width, 1.0F, 2);
  const Mirror<float> all_x = mirror_of(x);
  const Mirror<float> all_weights = mirror_of(weight);
  const Mirror<float> y("y", width);

  metro::rms_norm(all_x.kernels(), 1, width, all_weights.kernels(), 1e-6F, y.kernels());

  std::vector<float> partials(16, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    partials[i % 16] = std::fma(x[i], x[i], partials[i % 16]);
  }
  const float scale = 1.0F / std::sqrt(metro::test::tree(partials) / static_cast<float>(width) + 1e-6F);
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected.push_back((x[i] * scale) * weight[i]);
  }
  CHECK(same_bits(values_of(y), expected));
}

TEST_CASE("LayerNorm of long rows has 16 partial sums, bit for bit") {
  const std::int64_t width = GENERATE(2047, 2048, 2049, 4096, 5003);
  const std::vector<float> x = random_floats(width, 4.0F, 4);
  const std::vector<float> weight = random_floats(width, 1.0F, 5);
  const std::vector<float> bias = random_floats(width, 1.0F, 6);
  const Mirror<float> all_x = mirror_of(x);
  const Mirror<float> all_weights = mirror_of(weight);
  const Mirror<float> all_biases = mirror_of(bias);
  const Mirror<float> y("y", width);

  metro::layer_norm(all_x.kernels(), 1, width, all_weights.kernels(), all_biases.kernels(), 1e-5F, y.kernels());

  std::vector<float> sums(16, 0.0F);
  std::vector<float> squares(16, 0.0F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums[i % 16] = sums[i % 16] + x[i];
  }
  const float mean = metro::test::tree(sums) / static_cast<float>(width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares[i % 16] = std::fma(x[i] - mean, x[i] - mean, squares[i % 16]);
  }
  const float scale = 1.0F / std::sqrt(metro::test::tree(squares) / static_cast<float>(width) + 1e-5F);
  std::vector<float> expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected.push_back(std::fma((x[i] - mean) * scale, weight[i], bias[i]));
  }
  CHECK(same_bits(values_of(y), expected));
}

TEST_CASE("log-probabilities of long rows have 16 partial sums, bit for bit") {
  const std::int64_t vocab = GENERATE(1, 17, 2048, 5003);
  const std::vector<float> logits = random_floats(2 * vocab, 9.0F, 3);
  const Mirror<float> all_logits = mirror_of(logits);
  const Mirror<float> logprobs("logprobs", 2 * vocab);

  metro::log_softmax(all_logits.kernels(), 2, vocab, logprobs.kernels());

  std::vector<float> expected;
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto first = logits.begin() + row * vocab;
    const float top = *std::max_element(first, first + vocab);
    std::vector<float> partials(16, 0.0F);
    for (std::int64_t i = 0; i < vocab; ++i) {
      partials[at(i % 16)] = partials[at(i % 16)] + metro::portable::exp_of(first[i] - top);
    }
    const float log_sum = metro::portable::log_of(metro::test::tree(partials));
    for (std::int64_t i = 0; i < vocab; ++i) {
      expected.push_back(first[i] - top - log_sum);
    }
  }
  CHECK(same_bits(values_of(logprobs), expected));
}
