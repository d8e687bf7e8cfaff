// How far a product of int8 weights is from that of the weights they stand for: the bound of docs/numerics.md.
#include "checkpoint/quantise.hpp"
#include "kernels/buffer.hpp"
#include "kernels/linear.hpp"
#include "kernels/mirror.hpp"
#include "kernels/packed_matrix.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t in = 768;
constexpr std::int64_t out = 70;

std::vector<float> random_numbers(std::int64_t size, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < size; ++i) {
    numbers.push_back(static_cast<float>(generator() >> 8) * 0x1p-23F - 1.0F);
  }
  return numbers;
}

}  // namespace

TEST_CASE("an int8 product differs from that of the weights by at most half a scale per input, up to rounding") {
  const std::vector<float> weights = random_numbers(out * in, 1);
  const std::vector<float> x = random_numbers(in, 2);
  std::vector<float> scales(out);
  std::vector<std::int8_t> integers(weights.size());
  metro::quantise_rows(weights, scales, integers);
  const metro::RawBuffer memory("weights", metro::packed_bytes(metro::StoredType::int8, out, in));
  const metro::PackedMatrix packed =
      metro::pack(metro::StoredType::int8, out, in, integers.data(), {scales.data()}, memory.data());
  const metro::Mirror<float> y("y", out);

  metro::linear(x.data(), 1, packed, y.kernels());

  double largest_share = 0.0;  // of the bound
  for (std::int64_t n = 0; n < out; ++n) {
    double exact = 0.0;
    double inputs = 0.0;
    double products = 0.0;
    const auto scale = static_cast<double>(scales[static_cast<std::size_t>(n)]);
    for (std::int64_t k = 0; k < in; ++k) {
      const auto i = static_cast<std::size_t>(n * in + k);
      const auto value = static_cast<double>(x[static_cast<std::size_t>(k)]);
      exact += value * static_cast<double>(weights[i]);
      inputs += std::abs(value);
      products += std::abs(value * static_cast<double>(integers[i])) * scale;
    }
    const double bound = (0.5 + 0x1p-16) * scale * inputs + (in + 1) * 0x1p-24 * products;
    const double error = std::abs(static_cast<double>(y[n]) - exact);
    CHECK(error <= bound);
    largest_share = std::max(largest_share, error / bound);
  }
  // Errors of random sign: far below the bound, but not nothing.
  CHECK(largest_share > 0.01);
  CHECK(largest_share < 0.5);
}
