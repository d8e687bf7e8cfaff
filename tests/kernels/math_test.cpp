#include "kernels/portable/math.hpp"
#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

using metro::portable::exp_of;
using metro::portable::float_of;
using metro::portable::log_of;
using metro::portable::sigmoid;
using metro::portable::silu;
using metro::portable::widened;
using metro::test::error_in_ulp;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// Largest error of f over every `step`-th float between two bit patterns.
template <class F, class Exact>
double largest_error(std::uint32_t first, std::uint32_t last, std::uint32_t step, F&& f, Exact&& exact) {
  double largest = 0;
  for (std::uint64_t bits = first; bits <= last; bits += step) {
    const float x = float_of(static_cast<std::uint32_t>(bits));
    largest = std::max(largest, error_in_ulp(f(x), exact(static_cast<double>(x))));
  }
  return largest;
}

}  // namespace

TEST_CASE("exp is within 1.1 units in the last place for all arguments with a finite result") {
  const auto exact = [](double x) { return std::exp(x); };

  const double positive = largest_error(0x00000000U, 0x42b17217U, 251, exp_of, exact);  // 0 .. 88.7228
  const double negative =
      largest_error(0x80000000U, 0xc2d00000U, 251, exp_of, exact);  // -0 .. -104, subnormal results too

  CHECK(positive < 1.1);
  CHECK(negative < 1.1);
}

TEST_CASE("exp has the limits of the exponential") {
  CHECK(exp_of(0.0F) == 1.0F);
  CHECK(exp_of(-0.0F) == 1.0F);
  CHECK(exp_of(-infinity) == 0.0F);
  CHECK(exp_of(-1e30F) == 0.0F);
  CHECK(exp_of(-110.0F) == 0.0F);
  CHECK(exp_of(-103.0F) == std::numeric_limits<float>::denorm_min());
  CHECK(exp_of(infinity) == infinity);
  CHECK(exp_of(88.73F) == infinity);
  CHECK(exp_of(3e38F) == infinity);
  CHECK(std::isnan(exp_of(not_a_number)));
}

TEST_CASE("log is correctly rounded but for near-ties for all positive floats") {
  const double error = largest_error(0x00000001U, 0x7f7fffffU, 1009, log_of, [](double x) { return std::log(x); });
  const double near_one = largest_error(0x3f000000U, 0x40000000U, 61, log_of, [](double x) { return std::log(x); });

  CHECK(error < 0.501);
  CHECK(near_one < 0.501);
}

TEST_CASE("log has the limits of the logarithm") {
  CHECK(log_of(1.0F) == 0.0F);
  CHECK(log_of(0.0F) == -infinity);
  CHECK(log_of(-0.0F) == -infinity);
  CHECK(log_of(infinity) == infinity);
  CHECK(std::isnan(log_of(-1.0F)));
  CHECK(std::isnan(log_of(not_a_number)));
}

TEST_CASE("silu is within 3 units in the last place where the result is not tiny") {
  const auto exact = [](double x) { return x / (1.0 + std::exp(-x)); };

  const double positive = largest_error(0x00800000U, 0x7f7fffffU, 1009, silu, exact);
  const double negative = largest_error(0x80800000U, 0xc2ae0000U, 1009, silu, exact);  // down to -87

  CHECK(positive < 3.0);
  CHECK(negative < 3.0);
  CHECK(silu(0.0F) == 0.0F);
  CHECK(silu(-100.0F) == 0.0F);
  CHECK(silu(infinity) == infinity);
  CHECK(std::isnan(silu(-infinity)));
}

TEST_CASE("sigmoid is within 3 units in the last place where the result is not tiny, and has its limits") {
  const auto exact = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };

  const double positive = largest_error(0x00000000U, 0x7f7fffffU, 1009, sigmoid, exact);
  const double negative = largest_error(0x80000000U, 0xc2ae0000U, 1009, sigmoid, exact);  // down to -87

  CHECK(positive < 3.0);
  CHECK(negative < 3.0);
  CHECK(sigmoid(0.0F) == 0.5F);
  CHECK(sigmoid(infinity) == 1.0F);
  CHECK(sigmoid(-infinity) == 0.0F);
  CHECK(std::isnan(sigmoid(not_a_number)));
}

TEST_CASE("a widened bf16 is the float with the same upper half") {
  CHECK(widened(std::uint16_t{0x3f80}) == 1.0F);
  CHECK(widened(std::uint16_t{0xc040}) == -3.0F);
  CHECK(std::isinf(widened(std::uint16_t{0x7f80})));
}
