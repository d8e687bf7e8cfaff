#include "bench/synthetic_batches.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using metro::SyntheticBatches;

TEST_CASE("every token of a made-up batch has distinct experts, and a batch is the same every time") {
  const SyntheticBatches source{32, 50, 8, 1.0, 3};

  const auto batch = source.batch(4);

  REQUIRE(batch.size() == 400);
  for (auto token = batch.begin(); token != batch.end(); token += 8) {
    CHECK(std::set<std::int32_t>(token, token + 8).size() == 8);
    CHECK(*std::min_element(token, token + 8) >= 0);
    CHECK(*std::max_element(token, token + 8) < 32);
  }
  CHECK(source.batch(4) == batch);
  CHECK(source.batch(5) != batch);
}

TEST_CASE("experts are drawn as often as their loads say") {
  const SyntheticBatches source{16, 20000, 1, 1.0, 7};
  const auto loads = source.loads();
  const auto batch = source.batch(0);

  const double sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0}));
  for (std::int32_t expert = 0; expert < 16; ++expert) {
    const double expected = 20000.0 * static_cast<double>(loads[static_cast<std::size_t>(expert)]) / sum;
    const auto drawn = static_cast<double>(std::count(batch.begin(), batch.end(), expert));
    CHECK(std::abs(drawn - expected) < 5.0 * std::sqrt(expected) + 1.0);  // five standard deviations
  }
}

TEST_CASE("without skew all loads are equal, with skew they are not") {
  const auto equal = SyntheticBatches{64, 1, 8, 0.0, 1}.loads();
  const auto skewed = SyntheticBatches{64, 1, 8, 1.2, 1}.loads();

  CHECK(std::set<std::int64_t>(equal.begin(), equal.end()).size() == 1);
  CHECK(*std::max_element(skewed.begin(), skewed.end()) > 5 * *std::min_element(skewed.begin(), skewed.end()));
}

TEST_CASE("a token may choose all experts, but not more") {
  CHECK(SyntheticBatches{8, 1, 8, 0.5, 1}.batch(0).size() == 8);
  CHECK_THROWS_AS((SyntheticBatches{8, 1, 9, 0.5, 1}.batch(0)), metro::Bug);
}
