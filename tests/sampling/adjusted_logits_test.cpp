#include "sampling/adjusted_logits.hpp"

#include "base/error.hpp"
#include "sampling/sequences.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <random>

using metro::LogitAdjuster;
using metro::SamplingOptions;
using metro::Sequence;
using metro::test::make_sequence;
using Logits = std::vector<float>;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Logits adjusted(const Sequence& sequence, Logits logits, std::vector<std::int32_t> end_tokens = {}) {
  LogitAdjuster adjuster(static_cast<std::int64_t>(logits.size()), std::move(end_tokens));
  CHECK(adjuster.is_needed(sequence));
  adjuster.adjust(sequence, logits);
  return logits;
}

}  // namespace

TEST_CASE("a bias is added to the logit of its token") {
  SamplingOptions options;
  options.logit_bias = {{0, -100.0}, {2, 1.5}};

  CHECK(adjusted(make_sequence({1}, {2}, options), {1.0F, 2.0F, 3.0F}) == Logits{-99.0F, 2.0F, 4.5F});
}

TEST_CASE("end and stop tokens are excluded until min_tokens are generated") {
  SamplingOptions options;
  options.min_tokens = 2;
  options.stop_token_ids = {3};
  const Logits logits{1.0F, 2.0F, 3.0F, 4.0F};
  const Logits masked{1.0F, -infinity, 3.0F, -infinity};

  CHECK(adjusted(make_sequence({0, 0, 0}, {}, options), logits, {1, 9}) == masked);
  CHECK(adjusted(make_sequence({0}, {2}, options), logits, {1, 9}) == masked);
  CHECK(!LogitAdjuster(4, {1}).is_needed(make_sequence({0}, {2, 2}, options)));
}

TEST_CASE("the repetition penalty brings tokens of prompt and completion nearer to the bottom, once each") {
  SamplingOptions options;
  options.repetition_penalty = 2.0;

  CHECK(adjusted(make_sequence({0, 0, 1}, {2, 1}, options), {3.0F, -3.0F, 0.0F, 5.0F, -5.0F}) ==
        Logits{1.5F, -6.0F, 0.0F, 5.0F, -5.0F});
}

TEST_CASE("frequency and presence penalties count generated tokens only") {
  SamplingOptions frequency;
  frequency.frequency_penalty = 0.5;
  SamplingOptions presence;
  presence.presence_penalty = -0.25;
  const Logits logits{1.0F, 1.0F, 1.0F};

  CHECK(adjusted(make_sequence({0, 1}, {1, 2, 2, 2}, frequency), logits) == Logits{1.0F, 0.5F, -0.5F});
  CHECK(adjusted(make_sequence({0, 1}, {1, 2, 2, 2}, presence), logits) == Logits{1.0F, 1.25F, 1.25F});
}

TEST_CASE("biases come before the exclusion, and penalties after both") {
  SamplingOptions options;
  options.logit_bias = {{0, -3.0}, {1, 100.0}};
  options.min_tokens = 5;
  options.repetition_penalty = 2.0;
  options.frequency_penalty = 0.25;
  options.presence_penalty = 0.125;

  // Token 0: 1 - 3 = -2, doubled to -4, then twice a quarter and once an eighth. Token 1 ends: excluded for good.
  CHECK(adjusted(make_sequence({1}, {0, 0, 1}, options), {1.0F, 2.0F, 7.0F}, {1}) == Logits{-4.625F, -infinity, 7.0F});
}

TEST_CASE("random sequences are adjusted as a direct computation says, and nothing remains for the next") {
  std::mt19937 generator(1);
  const auto below = [&](std::uint32_t end) { return static_cast<std::int32_t>(generator() % end); };
  LogitAdjuster adjuster(50, {7});
  for (int round = 0; round < 200; ++round) {
    SamplingOptions options;
    options.frequency_penalty = (below(17) - 8) / 4.0;
    options.presence_penalty = (below(17) - 8) / 4.0;
    options.repetition_penalty = (1 + below(30)) / 10.0;
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(1 + below(20)));
    std::vector<std::int32_t> generated(static_cast<std::size_t>(below(40)));
    std::generate(prompt.begin(), prompt.end(), [&] { return below(50); });
    std::generate(generated.begin(), generated.end(), [&] { return below(50); });
    Logits logits(50);
    std::generate(logits.begin(), logits.end(), [&] { return static_cast<float>(below(2001) - 1000) / 64.0F; });

    Logits result = logits;
    adjuster.adjust(make_sequence(prompt, generated, options), result);

    for (std::int32_t token = 0; token < 50; ++token) {
      const auto count = std::count(generated.begin(), generated.end(), token);
      const bool is_seen = count > 0 || std::count(prompt.begin(), prompt.end(), token) > 0;
      double expected = static_cast<double>(logits[static_cast<std::size_t>(token)]);
      if (is_seen) {
        expected = expected > 0 ? expected / options.repetition_penalty : expected * options.repetition_penalty;
      }
      expected -= options.frequency_penalty * static_cast<double>(count);
      expected -= count > 0 ? options.presence_penalty : 0.0;
      REQUIRE(result[static_cast<std::size_t>(token)] == static_cast<float>(expected));
    }
  }
}

TEST_CASE("neutral options need no adjustment, each other one does") {
  const auto is_needed = [](auto change) {
    SamplingOptions options;
    change(options);
    return LogitAdjuster(4, {1}).is_needed(make_sequence({0}, {2}, options));
  };

  CHECK(!is_needed([](SamplingOptions&) {}));
  CHECK(!is_needed([](SamplingOptions& options) { options.stop_token_ids = {2}; }));
  CHECK(is_needed([](SamplingOptions& options) { options.logit_bias = {{1, 1.0}}; }));
  CHECK(is_needed([](SamplingOptions& options) { options.min_tokens = 2; }));
  CHECK(!is_needed([](SamplingOptions& options) { options.min_tokens = 1; }));
  CHECK(is_needed([](SamplingOptions& options) { options.repetition_penalty = 1.1; }));
  CHECK(is_needed([](SamplingOptions& options) { options.frequency_penalty = -0.1; }));
  CHECK(is_needed([](SamplingOptions& options) { options.presence_penalty = 0.1; }));
}

TEST_CASE("logits of another vocabulary are a bug") {
  LogitAdjuster adjuster(4, {});
  Logits logits(3);

  CHECK_THROWS_AS(adjuster.adjust(make_sequence({0}, {}), logits), metro::Bug);
}
