#include "report/latency_histogram.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using metro::LatencyHistogram;

namespace {

// By the nearest rank, from all values.
double exact_quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double rank = std::max(1.0, std::ceil(q * static_cast<double>(values.size())));
  return values[static_cast<std::size_t>(rank) - 1];
}

}  // namespace

TEST_CASE("quantiles are within one percent over twelve decades") {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-6.0, 6.0);
  std::vector<double> values;
  LatencyHistogram histogram;
  for (int i = 0; i < 5'000; ++i) {
    values.push_back(std::pow(10.0, exponent(random)));
    histogram.add(values.back());
  }

  for (const double q : {0.0, 0.001, 0.25, 0.5, 0.95, 0.99, 1.0}) {
    CAPTURE(q);
    CHECK(histogram.quantile(q) == Approx(exact_quantile(values, q)).epsilon(0.01));
  }
}

TEST_CASE("quantiles of few values are the values") {
  LatencyHistogram none;
  LatencyHistogram one;
  LatencyHistogram three;
  one.add(0.25);
  for (const double value : {0.3, 0.1, 0.2}) {
    three.add(value);
  }

  CHECK(none.quantile(0.5) == 0.0);
  CHECK(one.quantile(0.0) == 0.25);
  CHECK(one.quantile(0.99) == 0.25);
  CHECK(three.quantile(0.5) == Approx(0.2).epsilon(0.01));
  CHECK(three.num_values() == 3);
}

TEST_CASE("values beyond the buckets stay within what was added") {
  LatencyHistogram small;
  small.add(0.0);
  small.add(-1.0);
  small.add(1e-9);
  LatencyHistogram large;
  large.add(1e9);
  large.add(3e9);

  CHECK(small.quantile(0.5) >= 0.0);
  CHECK(small.quantile(1.0) <= 1e-9);
  CHECK(large.quantile(0.5) >= 1e9);
  CHECK(large.quantile(1.0) <= 3e9);
}
