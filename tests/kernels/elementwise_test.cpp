#include "kernels/elementwise.hpp"

#include "base/integers.hpp"
#include "kernel_data.hpp"
#include "kernels/portable/math.hpp"
#include "mirror_data.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

using metro::at;
using metro::Mirror;
using metro::test::mirror_of;
using metro::test::Numbers;
using metro::test::same_bits;
using metro::test::values_of;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(std::int64_t size, float scale, std::uint32_t seed) {
  Numbers numbers(seed);
  std::vector<float> values(at(size));
  for (float& value : values) {
    value = numbers.next(scale);
  }
  return values;
}

}  // namespace

TEST_CASE("a gated addition is one fma with the sigmoid of the row's gate, bit for bit") {
  const std::int64_t width = GENERATE(1, 7, 64, 301);
  constexpr std::int64_t num_rows = 5;
  const std::vector<float> x = random_floats(num_rows * width, 3.0F, 1);
  const std::vector<float> gates = random_floats(num_rows, 6.0F, 2);
  const std::vector<float> before = random_floats(num_rows * width, 3.0F, 3);
  const Mirror<float> x_there = mirror_of(x);
  const Mirror<float> gates_there = mirror_of(gates);
  const Mirror<float> residual = mirror_of(before);

  metro::add_gated(x_there.kernels(), gates_there.kernels(), num_rows, width, residual.kernels());

  std::vector<float> expected;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float gate = 1.0F / (1.0F + metro::portable::exp_of(-gates[i / at(width)]));
    expected.push_back(std::fma(gate, x[i], before[i]));
  }
  CHECK(same_bits(values_of(residual), expected));
}

TEST_CASE("a gate that is far below or above 0 lets nothing or all through, and no rows do nothing") {
  const Mirror<float> x = mirror_of(std::vector<float>{2.0F, 4.0F, 6.0F});
  const Mirror<float> gates = mirror_of(std::vector<float>{-infinity, 100.0F, 0.0F});
  const Mirror<float> residual = mirror_of(std::vector<float>{1.0F, 1.0F, 1.0F});

  metro::add_gated(x.kernels(), gates.kernels(), 0, 1, residual.kernels());
  metro::add_gated(x.kernels(), gates.kernels(), 3, 1, residual.kernels());

  CHECK(values_of(residual) == std::vector<float>{1.0F, 5.0F, 4.0F});
}

TEST_CASE("a gate that is not a number spoils its own row alone") {
  const Mirror<float> x = mirror_of(std::vector<float>{2.0F, 4.0F});
  const Mirror<float> gates = mirror_of(std::vector<float>{not_a_number, 0.0F});
  const Mirror<float> residual = mirror_of(std::vector<float>{1.0F, 1.0F});

  metro::add_gated(x.kernels(), gates.kernels(), 2, 1, residual.kernels());

  CHECK(std::isnan(values_of(residual)[0]));
  CHECK(values_of(residual)[1] == 3.0F);
}

TEST_CASE("clamping keeps what lies within the limit and brings the rest to it") {
  const Mirror<float> x = mirror_of(
      std::vector<float>{-infinity, -2.5001F, -2.5F, -1e-30F, 0.0F, 2.4999F, 2.5F, 3.0F, infinity, not_a_number});

  metro::clamp(2.5F, x.size(), x.kernels());

  const std::vector<float> clamped = values_of(x);
  CHECK(std::vector<float>(clamped.begin(), clamped.end() - 1) ==
        std::vector<float>{-2.5F, -2.5F, -2.5F, -1e-30F, 0.0F, 2.4999F, 2.5F, 2.5F, 2.5F});
  CHECK(std::isnan(clamped.back()));
}

TEST_CASE("clamping reaches every element of a long array and none beyond") {
  const std::int64_t size = GENERATE(0, 1, 4095, 4097, 10000);
  const Mirror<float> x = mirror_of(std::vector<float>(at(size + 1), -9.0F));

  metro::clamp(1.5F, size, x.kernels());

  std::vector<float> expected(at(size), -1.5F);
  expected.push_back(-9.0F);
  CHECK(values_of(x) == expected);
}
