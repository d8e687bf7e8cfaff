#include "sampling/sampler.hpp"

#include "requests/tiny_tokenizer.hpp"
#include "sampling/sequences.hpp"
#include "support/kernel_memory.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <set>

using metro::SampledToken;
using metro::Sampler;
using metro::SamplingOptions;
using metro::Sequence;
using metro::SequenceRows;
using metro::Tokenizer;
using metro::test::make_sequence;

namespace {

const Tokenizer& no_tokenizer() {
  FAIL("the tokenizer is not needed");
  throw 0;
}

const Tokenizer& tokenizer_of_tiny() {
  static const auto tokenizer = metro::test::tiny_tokenizer();
  return *tokenizer;
}

SequenceRows sampling_row(const Sequence& sequence) {
  return {&sequence, static_cast<std::int64_t>(sequence.tokens.size()) - 1, 1, true};
}

SampledToken sample_one(Sampler& sampler, const Sequence& sequence, const std::vector<float>& logits) {
  const auto sampled = sampler.sample({sampling_row(sequence)}, metro::test::kernel_copy(logits).data());
  REQUIRE(sampled.size() == 1);
  return sampled[0];
}

SamplingOptions hot(std::uint64_t seed) {
  SamplingOptions options;
  options.temperature = 1.0;
  options.seed = seed;
  return options;
}

// The tokens of a completion over constant logits.
std::vector<std::int32_t> complete(Sampler& sampler, Sequence sequence, const std::vector<float>& logits, int length) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < length; ++i) {
    tokens.push_back(sample_one(sampler, sequence, logits).token);
    sequence.tokens.push_back(tokens.back());
  }
  return tokens;
}

}  // namespace

TEST_CASE("at temperature 0 the largest logit wins, the lowest id among equals, after biases and penalties") {
  Sampler sampler(4, {}, no_tokenizer);
  const std::vector<float> logits{1.0F, 3.0F, 3.0F, 2.0F};
  SamplingOptions biased;
  biased.logit_bias = {{3, 1.0}};
  SamplingOptions more_biased;
  more_biased.logit_bias = {{3, 1.5}};
  SamplingOptions penalised;
  penalised.presence_penalty = 0.5;

  CHECK(sample_one(sampler, make_sequence({0}, {}), logits).token == 1);
  CHECK(sample_one(sampler, make_sequence({0}, {}, biased), logits).token == 1);
  CHECK(sample_one(sampler, make_sequence({0}, {}, more_biased), logits).token == 3);
  CHECK(sample_one(sampler, make_sequence({0}, {1}, penalised), logits).token == 2);
}

TEST_CASE("a completion depends on seed, sample and position, and on nothing else in the batch") {
  Sampler sampler(16, {}, no_tokenizer);
  const std::vector<float> logits(16, 0.0F);
  const Sequence first = make_sequence({1, 2}, {}, hot(5));
  Sequence other_sample = first;
  other_sample.request.sampling.sample_index = 1;

  const auto tokens = complete(sampler, first, logits, 40);

  CHECK(std::set<std::int32_t>(tokens.begin(), tokens.end()).size() > 8);
  CHECK(complete(sampler, first, logits, 40) == tokens);
  CHECK(complete(sampler, other_sample, logits, 40) != tokens);
  CHECK(complete(sampler, make_sequence({1, 2}, {}, hot(6)), logits, 40) != tokens);
  // The rest of the same completion, begun by another sampler, in a batch with other rows.
  Sampler elsewhere(16, {}, no_tokenizer);
  const Sequence rest = make_sequence({1, 2}, {tokens.begin(), tokens.begin() + 10}, hot(5));
  const std::vector<float> batch_logits(3 * 16, 0.0F);
  SequenceRows silent = sampling_row(first);
  silent.samples = false;
  const auto batch = elsewhere.sample({sampling_row(first), silent, sampling_row(rest), sampling_row(other_sample)},
                                      metro::test::kernel_copy(batch_logits).data());
  REQUIRE(batch.size() == 3);
  CHECK(batch[0].token == tokens[0]);
  CHECK(batch[1].token == tokens[10]);
}

TEST_CASE("log-probabilities are those of the logits before bias, penalties, cuts and temperature") {
  Sampler sampler(3, {}, no_tokenizer);
  const std::vector<float> logits{0.0F, std::log(2.0F), 0.0F};
  SamplingOptions options = hot(1);
  options.temperature = 0.1;
  options.logit_bias = {{2, 50.0}};
  options.top_k = 1;
  options.repetition_penalty = 1.5;
  Sequence sequence = make_sequence({0}, {1}, options);
  sequence.request.num_logprobs = 2;

  const SampledToken sampled = sample_one(sampler, sequence, logits);

  CHECK(sampled.token == 2);
  CHECK(sampled.logprob == Approx(std::log(0.25)));
  REQUIRE(sampled.likeliest.size() == 2);
  CHECK(sampled.likeliest[0].token == 1);
  CHECK(sampled.likeliest[0].logprob == Approx(std::log(0.5)));
  CHECK(sampled.likeliest[1].token == 0);
}

TEST_CASE("without logprobs nothing is reported, and logits are left as they are") {
  Sampler sampler(3, {0}, no_tokenizer);
  SamplingOptions options;
  options.logit_bias = {{2, 50.0}};
  options.min_tokens = 1;
  const std::vector<float> logits{9.0F, 1.0F, 0.0F};

  const SampledToken sampled = sample_one(sampler, make_sequence({0}, {}, options), logits);

  CHECK(sampled.token == 2);
  CHECK(sampled.logprob == 0.0F);
  CHECK(sampled.likeliest.empty());
  CHECK(sampled.stop_string == -1);
  CHECK(logits == std::vector<float>{9.0F, 1.0F, 0.0F});
}

TEST_CASE("a stop string is found by whichever sampler has the sequence, and forgotten with it") {
  const auto ids = tokenizer_of_tiny().encode("The dog was happy.");
  REQUIRE(ids.size() > 3);
  SamplingOptions options;
  options.stop = {"unheard of", "as happy"};
  const auto follow = [&](std::size_t num_seen_elsewhere) {
    Sampler sampler(2048, {}, tokenizer_of_tiny);
    std::vector<std::int32_t> verdicts;
    for (std::size_t i = num_seen_elsewhere; i < ids.size(); ++i) {
      SamplingOptions forced = options;
      forced.logit_bias = {{ids[i], 100.0}};
      const Sequence sequence = make_sequence({1}, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i)}, forced);
      const SampledToken sampled = sample_one(sampler, sequence, std::vector<float>(2048, 0.0F));
      CHECK(sampled.token == ids[i]);
      verdicts.push_back(sampled.stop_string);
    }
    sampler.forget(0);
    return verdicts;
  };

  const auto verdicts = follow(0);

  CHECK(std::count(verdicts.begin(), verdicts.end(), 1) == 1);
  CHECK(std::count(verdicts.begin(), verdicts.end(), -1) + 1 == static_cast<std::ptrdiff_t>(ids.size()));
  CHECK(tokenizer_of_tiny().decode({ids.data(), ids.size()}, true) == "The dog was happy.");
  // Another sampler that gets the sequence just before the token that completes the string.
  const auto found = std::find(verdicts.begin(), verdicts.end(), 1);
  CHECK(follow(static_cast<std::size_t>(found - verdicts.begin())) == std::vector<std::int32_t>(found, verdicts.end()));
}
