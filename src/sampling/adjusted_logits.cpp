#include "sampling/adjusted_logits.hpp"

#include "base/error.hpp"

#include <limits>
#include <utility>

namespace metro {

namespace {

std::size_t place_of(std::int32_t token) {
  return static_cast<std::size_t>(token);
}

std::int64_t num_generated(const Sequence& sequence) {
  return static_cast<std::int64_t>(sequence.tokens.size() - sequence.request.prompt.size());
}

bool has_penalties(const SamplingOptions& options) {
  return options.repetition_penalty != 1.0 || options.frequency_penalty != 0.0 || options.presence_penalty != 0.0;
}

}  // namespace

LogitAdjuster::LogitAdjuster(std::int64_t vocab_size, std::vector<std::int32_t> end_tokens)
    : end_tokens_(std::move(end_tokens)),
      num_generated_(static_cast<std::size_t>(vocab_size), 0),
      is_seen_(static_cast<std::size_t>(vocab_size), 0) {}

bool LogitAdjuster::is_needed(const Sequence& sequence) const {
  const SamplingOptions& options = sequence.request.sampling;
  return !options.logit_bias.empty() || num_generated(sequence) < options.min_tokens || has_penalties(options);
}

void LogitAdjuster::adjust(const Sequence& sequence, std::span<float> logits) {
  METRO_REQUIRE(logits.size() == is_seen_.size(), "logits of another vocabulary");
  const SamplingOptions& options = sequence.request.sampling;
  for (const TokenBias& one : options.logit_bias) {
    float& logit = logits[place_of(one.token)];
    logit = static_cast<float>(static_cast<double>(logit) + one.bias);
  }
  if (num_generated(sequence) < options.min_tokens) {
    exclude_ends(options, logits);
  }
  if (has_penalties(options)) {
    apply_penalties(sequence, logits);
  }
}

void LogitAdjuster::exclude_ends(const SamplingOptions& options, std::span<float> logits) const {
  constexpr float excluded = -std::numeric_limits<float>::infinity();
  for (const std::int32_t token : end_tokens_) {
    if (place_of(token) < logits.size()) {
      logits[place_of(token)] = excluded;
    }
  }
  for (const std::int32_t token : options.stop_token_ids) {
    logits[place_of(token)] = excluded;
  }
}

void LogitAdjuster::apply_penalties(const Sequence& sequence, std::span<float> logits) {
  const SamplingOptions& options = sequence.request.sampling;
  const std::size_t prompt_length = sequence.request.prompt.size();
  for (std::size_t i = prompt_length; i < sequence.tokens.size(); ++i) {
    ++num_generated_[place_of(sequence.tokens[i])];
  }
  for (const std::int32_t token : sequence.tokens) {
    if (std::exchange(is_seen_[place_of(token)], '\1') == '\1') {
      continue;  // its penalties are in the logit already
    }
    double logit = static_cast<double>(logits[place_of(token)]);
    logit = logit > 0.0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (const std::int32_t count = num_generated_[place_of(token)]; count > 0) {
      logit -= options.frequency_penalty * count;
      logit -= options.presence_penalty;
    }
    logits[place_of(token)] = static_cast<float>(logit);
  }
  for (const std::int32_t token : sequence.tokens) {
    is_seen_[place_of(token)] = '\0';
    num_generated_[place_of(token)] = 0;
  }
}

}  // namespace metro
