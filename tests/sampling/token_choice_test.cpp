// Which token a number from [0, 1) stands for: boundaries, order, cuts, and rows that are no distribution.
#include "sampling/token_choice.hpp"

#include "base/error.hpp"
#include "sampling/distribution.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <set>

using metro::SamplingOptions;
using metro::TokenChooser;
using metro::uniform_number;
using metro::test::choose;
using metro::test::exact_distribution;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
const double almost_one = std::nextafter(1.0, 0.0);

SamplingOptions at_temperature(double temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  return options;
}

std::int32_t choice(const std::vector<float>& logits, const SamplingOptions& options, double uniform) {
  TokenChooser chooser(static_cast<std::int64_t>(logits.size()));
  return choose(chooser, logits, options, uniform);
}

// How many tokens of four equally likely ones can come up.
std::size_t num_left(const SamplingOptions& options) {
  std::set<std::int32_t> chosen;
  for (int i = 0; i < 1000; ++i) {
    chosen.insert(choice({1.0F, 1.0F, 1.0F, 1.0F}, options, i / 1000.0));
  }
  CHECK(*chosen.rbegin() + 1 == static_cast<std::int32_t>(chosen.size()));  // the lowest ids
  return chosen.size();
}

}  // namespace

TEST_CASE("the random numbers are those of XXH3 over seed, sample and position") {
  // XXH3 (64 bits), as the xxHash library gives it, of the three as 64-bit little-endian words, shifted right by 11.
  CHECK(uniform_number(0, 0, 0) == 0xe87bf29dc98f1p-53);
  CHECK(uniform_number(42, 1, 17) == 0x50b59e48d4187p-53);
  CHECK(uniform_number(18446744073709551615U, 127, 1048576) == 0x17f952e4242413p-53);
}

TEST_CASE("every argument changes the random number, and all are at least 0 and below 1") {
  std::set<double> numbers;

  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::int32_t sample_idx = 0; sample_idx < 20; ++sample_idx) {
      for (std::int64_t position = 0; position < 20; ++position) {
        const double number = uniform_number(seed, sample_idx, position);
        CHECK((number >= 0.0 && number < 1.0));
        numbers.insert(number);
      }
    }
  }

  CHECK(numbers.size() == 8000);
}

TEST_CASE("a number stands for the token in whose share of the unit interval it lies, likeliest first") {
  const std::vector<float> equal(4, -3.0F);
  const auto options = at_temperature(0.7);

  CHECK(choice(equal, options, 0.0) == 0);
  CHECK(choice(equal, options, std::nextafter(0.25, 0.0)) == 0);
  CHECK(choice(equal, options, 0.25) == 1);
  CHECK(choice(equal, options, 0.5) == 2);
  CHECK(choice(equal, options, std::nextafter(0.75, 0.0)) == 2);
  CHECK(choice(equal, options, almost_one) == 3);
  // So hot that all are about equally likely; the order is still that of the logits: 3, 1, 0, 2.
  const std::vector<float> ranked{0.0F, 1.0F, 0.0F, 9.0F};
  CHECK(choice(ranked, at_temperature(1e6), 0.1) == 3);
  CHECK(choice(ranked, at_temperature(1e6), 0.3) == 1);
  CHECK(choice(ranked, at_temperature(1e6), 0.6) == 0);
  CHECK(choice(ranked, at_temperature(1e6), 0.9) == 2);
}

TEST_CASE("top_k leaves exactly so many, the lower ids among equals") {
  auto options = at_temperature(1.0);
  for (const std::int32_t top_k : {1, 2, 3, 4}) {
    options.top_k = top_k;
    CHECK(num_left(options) == static_cast<std::size_t>(top_k));
  }
  options.top_k = 0;
  CHECK(num_left(options) == 4);
}

TEST_CASE("top_p leaves the fewest that reach it, at least one") {
  auto options = at_temperature(1.0);
  const auto left_at = [&](double top_p) {
    options.top_p = top_p;
    return num_left(options);
  };

  CHECK(left_at(1.0) == 4);
  CHECK(left_at(0.75) == 3);
  CHECK(left_at(std::nextafter(0.75, 1.0)) == 4);
  CHECK(left_at(0.5) == 2);
  CHECK(left_at(std::nextafter(0.5, 0.0)) == 2);
  CHECK(left_at(0.25) == 1);
  CHECK(left_at(std::numeric_limits<double>::denorm_min()) == 1);
}

TEST_CASE("top_p is a share of what top_k leaves") {
  auto options = at_temperature(1.0);
  options.top_k = 2;
  options.top_p = 0.5;  // of two equal ones: one; of all four it would be two

  CHECK(num_left(options) == 1);
}

TEST_CASE("min_p compares with the likeliest token") {
  // Weights 1, 1/2, 1/4 within rounding.
  const std::vector<float> logits{std::log(0.25F), 0.0F, std::log(0.5F)};
  auto options = at_temperature(1.0);
  const auto last_possible = [&](double min_p) {
    options.min_p = min_p;
    return choice(logits, options, almost_one);
  };

  CHECK(last_possible(0.0) == 0);
  CHECK(last_possible(0.24) == 0);
  CHECK(last_possible(0.26) == 2);
  CHECK(last_possible(0.51) == 1);
  CHECK(last_possible(1.0) == 1);
  options.min_p = 1.0;
  CHECK(num_left(options) == 4);  // equal ones all are the likeliest
}

TEST_CASE("a temperature near 0 gives the likeliest token, however large the logits") {
  const std::vector<float> logits{3e38F, -3e38F, 3.1e38F, 0.0F};

  for (const double temperature : {1e-300, 1e-6, 1.0}) {
    for (const double uniform : {0.0, 0.5, almost_one}) {
      CHECK(choice(logits, at_temperature(temperature), uniform) == 2);
    }
  }
}

TEST_CASE("excluded tokens and NaN never come up, and a row of nothing else gives a valid token") {
  const auto options = at_temperature(1.0);
  auto cut = options;
  cut.top_p = 0.9;
  cut.min_p = 0.5;

  for (const auto& one : {options, cut}) {
    CHECK(choice({-infinity, 0.0F, -infinity}, one, almost_one) == 1);
    CHECK(choice({not_a_number, -infinity, 1.0F}, one, almost_one) == 2);
    CHECK(choice({0.0F, infinity, 5.0F}, one, almost_one) == 1);
    CHECK(choice({not_a_number, not_a_number}, one, almost_one) == 0);
    CHECK(choice({not_a_number, -infinity, not_a_number}, one, 0.0) == 1);
  }
}

TEST_CASE("a large vocabulary gives the tokens of a full sort") {
  std::mt19937 generator(3);
  std::vector<float> logits(20'011);
  for (float& logit : logits) {
    logit = static_cast<float>(generator() % 4096U) / 512.0F;  // ties, and weights that are nearly equal
  }
  TokenChooser chooser(static_cast<std::int64_t>(logits.size()));
  for (const double top_p : {1.0, 0.97}) {
    for (const std::int32_t top_k : {0, 300, 5000}) {
      auto options = at_temperature(4.0);
      options.top_p = top_p;
      options.top_k = top_k;
      CAPTURE(top_p, top_k);
      const auto exact = exact_distribution(logits, options);
      // The middle of each token's share, which no rounding can miss.
      double sum = 0.0;
      for (std::size_t place = 0; place < logits.size(); ++place) {
        const double probability = exact.probabilities[static_cast<std::size_t>(exact.order[place])];
        if (place % 97 == 0 && probability > 0.0) {
          CHECK(choose(chooser, logits, options, sum + probability / 2) == exact.order[place]);
        }
        sum += probability;
      }
    }
  }
}

TEST_CASE("a number that is negative or 1, a temperature of 0 or another vocabulary is a bug") {
  TokenChooser chooser(2);
  const std::vector<float> logits(2, 0.0F);

  CHECK_THROWS_AS(choose(chooser, logits, at_temperature(1.0), 1.0), metro::Bug);
  CHECK_THROWS_AS(choose(chooser, logits, at_temperature(1.0), -0.1), metro::Bug);
  CHECK_THROWS_AS(choose(chooser, logits, at_temperature(0.0), 0.5), metro::Bug);
  CHECK_THROWS_AS(choose(chooser, std::vector<float>(3, 0.0F), at_temperature(1.0), 0.5), metro::Bug);
}
