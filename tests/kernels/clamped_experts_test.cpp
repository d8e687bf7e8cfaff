// Experts whose halves are joined by a clamped SwiGLU.
#include "base/error.hpp"
#include "expert_data.hpp"
#include "kernel_data.hpp"
#include "kernels/experts.hpp"
#include "kernels/linear.hpp"
#include "kernels/portable/activation.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::ActivationKind;
using metro::ExpertWeights;
using metro::ExpertWork;
using metro::StoredType;
using metro::portable::clamped_swiglu;
using metro::test::Array;
using metro::test::error_in_ulp;
using metro::test::Expert;
using metro::test::Numbers;
using metro::test::random_expert;
using metro::test::same_bits;

namespace {

constexpr float largest_float = std::numeric_limits<float>::max();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

double exact_swiglu(double gate, double up, double limit) {
  const double g = std::min(gate, limit);
  const double u = std::clamp(up, -limit, limit);
  return (u + 1.0) * g / (1.0 + std::exp(-1.702 * g));
}

}  // namespace

TEST_CASE("a clamped SwiGLU is within 4 units in the last place, and 3 more for each unit of a negative gate") {
  double largest = 0.0;

  for (int gate = -400; gate <= 100; ++gate) {  // -40 .. 10
    for (int up = -100; up <= 100; ++up) {
      const auto g = static_cast<float>(gate) * 0.1F;
      const auto u = static_cast<float>(up) * 0.1F;
      if (std::abs(std::clamp(u, -7.0F, 7.0F) + 1.0F) > 0.05F) {  // near -1 the sum u + 1 loses digits that u never had
        const double exact = exact_swiglu(static_cast<double>(g), static_cast<double>(u), 7.0);
        // The constant and its product are rounded: the exponent is off by 2.7 |g| * 2^-24, and so is what is far
        // below.
        const double allowed = 4.0 + 2.75 * std::max(0.0, -static_cast<double>(g));
        largest = std::max(largest, error_in_ulp(clamped_swiglu(g, u, 7.0F), exact) / allowed);
      }
    }
  }

  CHECK(largest < 1.0);
}

TEST_CASE("a clamped SwiGLU limits the gate from above and the other half on both sides") {
  const float limit = 1.5F;
  const float just_above = std::nextafter(limit, 2.0F);

  CHECK(clamped_swiglu(just_above, 0.5F, limit) == clamped_swiglu(limit, 0.5F, limit));
  CHECK(clamped_swiglu(largest_float, 0.5F, limit) == clamped_swiglu(limit, 0.5F, limit));
  CHECK(clamped_swiglu(0.5F, just_above, limit) == clamped_swiglu(0.5F, limit, limit));
  CHECK(clamped_swiglu(0.5F, -just_above, limit) == clamped_swiglu(0.5F, -limit, limit));
  CHECK(clamped_swiglu(0.5F, -largest_float, limit) == clamped_swiglu(0.5F, -limit, limit));
  CHECK(clamped_swiglu(-2.0F, 0.5F, limit) != clamped_swiglu(-1.5F, 0.5F, limit));  // no limit below
  CHECK(clamped_swiglu(-largest_float, 0.5F, limit) == 0.0F);
  CHECK(clamped_swiglu(1.0F, -1.0F, limit) == 0.0F);
  CHECK(std::isnan(clamped_swiglu(not_a_number, 0.5F, limit)));
  CHECK(std::isnan(clamped_swiglu(0.5F, not_a_number, limit)));
}

TEST_CASE("an expert with a clamped activation is its linear layers and that, bit for bit") {
  const StoredType type = GENERATE(StoredType::bf16, StoredType::f32, StoredType::int8);
  const bool has_bias = GENERATE(false, true);
  const std::int64_t width = 40;
  const std::int64_t hidden_width = 35;
  const std::int64_t num_rows = 11;
  const float limit = 2.0F;
  Numbers numbers(9);
  const Expert expert = random_expert(type, type, width, hidden_width, numbers, has_bias);
  ExpertWeights weights = expert.packed();
  weights.activation = {ActivationKind::clamped_swiglu, limit};
  const Array<float> x = numbers.array(num_rows * width);
  Array<float> hidden("hidden", num_rows * hidden_width);
  Array<float> y("y", num_rows * width);

  metro::expert_ffn(std::vector<ExpertWork>{{weights, 0, num_rows}}, x.data(), hidden.data(), y.data());

  Array<float> gate("gate", num_rows * hidden_width);
  Array<float> up("up", num_rows * hidden_width);
  Array<float> expected("expected", num_rows * width);
  metro::linear(x.data(), num_rows, weights.gate, gate.data());
  metro::linear(x.data(), num_rows, weights.up, up.data());
  std::int64_t num_limited = 0;
  for (std::int64_t i = 0; i < gate.size(); ++i) {
    num_limited += gate[i] > limit || std::abs(up[i]) > limit ? 1 : 0;
    gate[i] = clamped_swiglu(gate[i], up[i], limit);
  }
  metro::linear(gate.data(), num_rows, weights.down, expected.data());
  CHECK(same_bits(y.span(), expected.span()));
  CHECK(num_limited > 0);
  CHECK(num_limited < gate.size());
}

TEST_CASE("experts of different activations in one call are a bug") {
  Numbers numbers(6);
  const Expert expert = random_expert(StoredType::bf16, 8, 8, numbers);
  ExpertWeights clamped = expert.packed();
  clamped.activation = {ActivationKind::clamped_swiglu, 7.0F};

  CHECK_THROWS_AS(
      metro::expert_ffn(std::vector<ExpertWork>{{expert.packed(), 0, 0}, {clamped, 0, 0}}, nullptr, nullptr, nullptr),
      metro::Bug);
}
