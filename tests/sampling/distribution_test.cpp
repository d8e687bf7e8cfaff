// Many draws against the exact probabilities: Pearson's chi-square with fixed seeds.
#include "sampling/token_choice.hpp"

#include "sampling/distribution.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using metro::SamplingOptions;
using metro::TokenChooser;
using metro::test::choose;
using metro::test::exact_distribution;

namespace {

constexpr std::int64_t num_draws = 20'000;

// Ties, a steep head, a flat tail, in no particular order.
std::vector<float> example_logits() {
  return {0.5F, -1.25F, 3.0F, 2.0F, 2.0F, -4.0F, 0.5F, 1.75F, -0.5F, 2.875F, -2.0F, 0.0F, 0.25F, -8.0F, 1.0F, 1.0F};
}

std::vector<std::int64_t> draw(const std::vector<float>& logits, const SamplingOptions& options) {
  TokenChooser chooser(static_cast<std::int64_t>(logits.size()));
  std::vector<std::int64_t> counts(logits.size(), 0);
  for (std::int64_t position = 0; position < num_draws; ++position) {
    const double uniform = metro::uniform_number(options.seed, options.sample_index, position);
    ++counts[static_cast<std::size_t>(choose(chooser, logits, options, uniform))];
  }
  return counts;
}

// Fails for a token that is cut off and was drawn, and for counts too far from the expected ones: the bound is above
// the 0.9999 quantile for every number of degrees of freedom from 1 to 20.
void check_counts(const std::vector<std::int64_t>& counts, const std::vector<double>& probabilities) {
  double chi_square = 0.0;
  int num_possible = 0;
  double rare_expected = 0.0;  // tokens expected less than five times are taken together
  double rare_counted = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(num_draws);
    const auto counted = static_cast<double>(counts[i]);
    if (expected == 0.0) {
      CHECK(counts[i] == 0);
    } else if (expected < 5.0) {
      rare_expected += expected;
      rare_counted += counted;
    } else {
      chi_square += (counted - expected) * (counted - expected) / expected;
      ++num_possible;
    }
  }
  CHECK(std::abs(rare_counted - rare_expected) <= 5.0 * std::sqrt(rare_expected) + 5.0);
  const double freedom = std::max(1, num_possible - 1);
  CHECK(chi_square <= freedom + 5.0 * std::sqrt(2.0 * freedom) + 8.0);
}

void check_distribution(const SamplingOptions& options) {
  CAPTURE(options.temperature, options.top_k, options.top_p, options.min_p, options.seed);
  const auto logits = example_logits();

  const auto counts = draw(logits, options);

  check_counts(counts, exact_distribution(logits, options).probabilities);
}

}  // namespace

TEST_CASE("tokens come up as often as their probabilities say at several temperatures") {
  SamplingOptions options;
  for (const double temperature : {0.25, 0.7, 1.0, 1.9, 20.0}) {
    options.temperature = temperature;
    ++options.seed;
    check_distribution(options);
  }
}

TEST_CASE("top_k, top_p and min_p cut the distribution and leave its shape") {
  SamplingOptions options;
  for (const double temperature : {0.5, 1.0, 3.0}) {
    for (const std::int32_t top_k : {0, 1, 3, 10, 16}) {
      for (const double top_p : {1.0, 0.9, 0.5, 0.05}) {
        for (const double min_p : {0.0, 0.1, 0.6}) {
          options = SamplingOptions{};
          options.temperature = temperature;
          options.top_k = top_k;
          options.top_p = top_p;
          options.min_p = min_p;
          options.seed = static_cast<std::uint64_t>(top_k) * 1000 + static_cast<std::uint64_t>(100 * top_p);
          check_distribution(options);
        }
      }
    }
  }
}

TEST_CASE("samples of one seed are as if independent") {
  // Pairs (choice of sample 0, choice of sample 1) at the same positions, over 4 equally likely tokens.
  const std::vector<float> logits(4, 0.5F);
  SamplingOptions options;
  options.temperature = 1.0;
  TokenChooser chooser(4);
  std::vector<std::int64_t> counts(16, 0);

  for (std::int64_t position = 0; position < num_draws; ++position) {
    const std::int32_t first = choose(chooser, logits, options, metro::uniform_number(7, 0, position));
    const std::int32_t second = choose(chooser, logits, options, metro::uniform_number(7, 1, position));
    ++counts[static_cast<std::size_t>(4 * first + second)];
  }

  check_counts(counts, std::vector<double>(16, 1.0 / 16));
}

TEST_CASE("neighbouring positions of one sample are as if independent") {
  std::vector<std::int64_t> counts(64, 0);

  for (std::int64_t position = 0; position < num_draws; ++position) {
    const auto bin = [&](std::int64_t at) { return static_cast<std::size_t>(8 * metro::uniform_number(11, 2, at)); };
    ++counts[8 * bin(2 * position) + bin(2 * position + 1)];
  }

  double chi_square = 0.0;
  for (const std::int64_t count : counts) {
    const double expected = static_cast<double>(num_draws) / 64;
    chi_square += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) / expected;
  }
  CHECK(chi_square < 63 + 5 * std::sqrt(2.0 * 63));
  CHECK(chi_square > 63 - 5 * std::sqrt(2.0 * 63));
}
