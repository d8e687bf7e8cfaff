// The arithmetic that docs/gpu_kernels.md proposes for tensor cores, on a CPU: floats in three bf16 parts, products
// added up in blocks of 16 that are aligned and cut off. Nothing in the program uses it yet; what is tested is the
// bound.
#include "base/integers.hpp"
#include "base/stored_type.hpp"
#include "kernel_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

using metro::at;
using metro::test::Numbers;

namespace {

constexpr std::int64_t block = 16;
constexpr std::int64_t group = 64;  // elements added up without IEEE rounding

// To the nearest bf16, ties to even.
float rounded_to_bf16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits += 0x7fffU + ((bits >> 16) & 1U);
  return metro::widen_bf16(static_cast<std::uint16_t>(bits >> 16));
}

std::array<float, 3> parts_of(float x) {
  const float first = rounded_to_bf16(x);
  const float second = rounded_to_bf16(x - first);
  return {first, second, rounded_to_bf16(x - first - second)};
}

// Towards zero.
float cut_to_float(double x) {
  const float nearest = static_cast<float>(x);
  return std::abs(static_cast<double>(nearest)) > std::abs(x) ? std::nextafter(nearest, 0.0F) : nearest;
}

// sum + products as a tensor core is said to do it: all terms cut to extra_bits below the last place of a float as
// large as the largest of them, added exactly, cut to a float.
float add_block(float sum, const std::array<double, block>& products, int extra_bits) {
  double largest = std::abs(static_cast<double>(sum));
  for (const double product : products) {
    largest = std::max(largest, std::abs(product));
  }
  if (largest == 0.0) {
    return 0.0F;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 23 - extra_bits);
  double total = std::trunc(static_cast<double>(sum) / unit) * unit;
  for (const double product : products) {
    total += std::trunc(product / unit) * unit;
  }
  return cut_to_float(total);
}

struct Dot {
  std::vector<float> x, w;  // w: bf16
};

Dot random_dot(std::int64_t size, bool positive, std::uint32_t seed) {
  Numbers numbers(seed);
  Dot dot;
  for (std::int64_t k = 0; k < size; ++k) {
    const float x = numbers.next();
    const float large = k % 97 == 5 ? 40.0F : 1.0F;  // some activations are far larger than the rest
    const float w = rounded_to_bf16(numbers.next());
    dot.x.push_back(large * (positive ? std::abs(x) : x));
    dot.w.push_back(positive ? std::abs(w) : w);
  }
  return dot;
}

// Products first .. end - 1 of one part, block by block.
float add_part(float sum, const Dot& dot, std::size_t part, std::size_t first, std::size_t end, int extra_bits) {
  for (; first < end; first += block) {
    std::array<double, block> products = {};
    for (std::size_t k = first; k < std::min<std::size_t>(first + block, end); ++k) {
      products[k - first] = static_cast<double>(parts_of(dot.x[k])[part]) * static_cast<double>(dot.w[k]);
    }
    sum = add_block(sum, products, extra_bits);
  }
  return sum;
}

// Small parts first; after group_size elements of all parts the sum moves to one that is rounded as IEEE 754 asks.
float by_blocks(const Dot& dot, std::size_t group_size, int extra_bits) {
  float sum = 0.0F;
  for (std::size_t first = 0; first < dot.x.size(); first += group_size) {
    const std::size_t end = std::min(first + group_size, dot.x.size());
    float of_group = 0.0F;
    for (const std::size_t part : {2U, 1U, 0U}) {
      of_group = add_part(of_group, dot, part, first, end, extra_bits);
    }
    sum = sum + of_group;
  }
  return sum;
}

float by_chain(const Dot& dot) {
  float sum = 0.0F;
  for (std::size_t k = 0; k < dot.x.size(); ++k) {
    sum = std::fma(dot.x[k], dot.w[k], sum);
  }
  return sum;
}

// Products are exact in double and their sum nearly so.
double exact(const Dot& dot) {
  double sum = 0;
  for (std::size_t k = 0; k < dot.x.size(); ++k) {
    sum += static_cast<double>(dot.x[k]) * static_cast<double>(dot.w[k]);
  }
  return sum;
}

double sum_of_sizes(const Dot& dot) {
  double sum = 0;
  for (std::size_t k = 0; k < dot.x.size(); ++k) {
    sum += std::abs(static_cast<double>(dot.x[k]) * static_cast<double>(dot.w[k]));
  }
  return sum;
}

double squared(double x) {
  return x * x;
}

}  // namespace

TEST_CASE("three bf16 parts are a float exactly, from 2^-110 on, and their products with bf16 are floats exactly") {
  Numbers numbers(1);
  for (int exponent = -110; exponent < 127; ++exponent) {
    for (int i = 0; i < 200; ++i) {
      const float x = std::ldexp(1.0F + 0.5F * (numbers.next() + 1.0F), exponent);
      if (x >= 0x1.fep127F) {
        continue;  // its first part would be infinite
      }
      const std::array<float, 3> parts = parts_of(x);
      REQUIRE(static_cast<double>(parts[0]) + static_cast<double>(parts[1]) + static_cast<double>(parts[2]) ==
              static_cast<double>(x));
      const float w = rounded_to_bf16(numbers.next());
      const double product = static_cast<double>(parts[0]) * static_cast<double>(w);
      if (std::abs(product) >= 0x1p-120 && std::abs(product) < 0x1p127) {
        REQUIRE(static_cast<double>(parts[0] * w) == product);
      }
    }
  }
}

TEST_CASE("sums by blocks of three parts stay within their bound") {
  const std::int64_t size = GENERATE(16, 100, 768, 2048, 7168);
  const bool positive = GENERATE(false, true);
  const int extra_bits = GENERATE(0, 1, 2);
  const auto num_groups = static_cast<double>(metro::ceil_div(size, group));
  const double blocks = static_cast<double>(group / block) * (17 * std::ldexp(1.0, -extra_bits) + 1) * 0x1p-23;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Dot dot = random_dot(size, positive, seed);

    const float sum = by_blocks(dot, group, extra_bits);

    const double factor = 1.03 * blocks + num_groups * 0x1p-24;
    // One hundredth for what is of second order.
    CHECK(std::abs(static_cast<double>(sum) - exact(dot)) <= 1.01 * factor * sum_of_sizes(dot));
  }
}

TEST_CASE("sums by blocks are closer to the exact ones than the chain of fma if groups are added up as IEEE 754 asks") {
  const bool positive = GENERATE(false, true);
  const int extra_bits = GENERATE(0, 1, 2);
  double of_groups = 0;
  double of_chain = 0;
  double of_blocks_alone = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const Dot dot = random_dot(2048, positive, seed);
    const double size = sum_of_sizes(dot);
    of_groups += squared((static_cast<double>(by_blocks(dot, group, extra_bits)) - exact(dot)) / size);
    of_blocks_alone += squared((static_cast<double>(by_blocks(dot, 2048, extra_bits)) - exact(dot)) / size);
    of_chain += squared((static_cast<double>(by_chain(dot)) - exact(dot)) / size);
  }

  CHECK(of_groups < of_chain);
  if (positive) {
    CHECK(of_blocks_alone > 16 * of_chain);  // cutting always to the same side
  }
}
