#include "sampling/sampler.hpp"

#include "base/error.hpp"
#include "kernels/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace metro {

Sampler::Sampler(std::int64_t vocab_size, std::vector<std::int32_t> end_tokens, TokenizerSource tokenizer)
    : vocab_size_(vocab_size),
      tokenizer_(std::move(tokenizer)),
      adjuster_(vocab_size, std::move(end_tokens)),
      chooser_(vocab_size),
      adjusted_("adjusted logits", vocab_size),
      logprobs_("logprobs", vocab_size) {}

namespace {

std::int32_t likeliest_token(const float* logits, std::int64_t vocab_size) {
  std::int32_t likeliest = 0;
  argmax(logits, 1, vocab_size, &likeliest);
  return likeliest;
}

}  // namespace

std::vector<SampledToken> Sampler::sample(const std::vector<SequenceRows>& rows, const float* logits) {
  std::vector<SampledToken> sampled;
  for (const SequenceRows& one : rows) {
    if (!one.samples) {
      continue;
    }
    const Request& request = one.sequence->request;
    SampledToken next;
    next.token = next_token(*one.sequence, logits);
    if (request.num_logprobs >= 0) {
      next = scored(logits, next.token, request.num_logprobs);
    }
    if (!request.sampling.stop.empty()) {
      next.stop_string = found_stop_string(*one.sequence, next.token);
    }
    sampled.push_back(std::move(next));
    logits += vocab_size_;
  }
  return sampled;
}

std::int32_t Sampler::next_token(const Sequence& sequence, const float* logits) {
  const std::int32_t likeliest = likeliest_token(logits, vocab_size_);
  if (!std::isfinite(logits[likeliest])) {
    throw Error(ExitCode::internal, fmt::format("request {}: the logits after position {} are not finite",
                                                sequence.request.id, sequence.tokens.size() - 1));
  }
  const SamplingOptions& options = sequence.request.sampling;
  if (!adjuster_.is_needed(sequence) && options.temperature == 0.0) {
    return likeliest;
  }
  if (adjuster_.is_needed(sequence)) {
    std::copy(logits, logits + vocab_size_, adjusted_.data());
    adjuster_.adjust(sequence, adjusted_.span());
    logits = adjusted_.data();
  }
  if (options.temperature == 0.0) {
    return likeliest_token(logits, vocab_size_);
  }
  const auto position = static_cast<std::int64_t>(sequence.tokens.size());
  const double uniform = uniform_number(options.seed, options.sample_index, position);
  return chooser_.choose(std::span(logits, static_cast<std::size_t>(vocab_size_)), options, uniform);
}

SampledToken Sampler::scored(const float* logits, std::int32_t token, std::int32_t num_logprobs) const {
  SampledToken scored;
  scored.token = token;
  log_softmax(logits, 1, vocab_size_, logprobs_.data());
  scored.logprob = logprobs_[token];
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_logprobs));
  std::vector<float> values(ids.size());
  top_logprobs(logprobs_.data(), 1, vocab_size_, num_logprobs, ids.data(), values.data());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    scored.likeliest.push_back({ids[i], values[i]});
  }
  return scored;
}

// Which stop string ends with the sequence's next token; -1: none.
std::int32_t Sampler::found_stop_string(const Sequence& sequence, std::int32_t next_token) {
  const Request& request = sequence.request;
  auto found = watches_.find(request.id);
  if (found == watches_.end()) {
    found = watches_.emplace(request.id, StopWatch(tokenizer_(), request.sampling)).first;
    // A sequence may come here with tokens that were generated elsewhere.
    for (std::size_t i = request.prompt.size(); i < sequence.tokens.size(); ++i) {
      found->second.push(sequence.tokens[i]);
    }
  }
  const auto match = found->second.push(next_token);
  return match ? match->string_idx : -1;
}

}  // namespace metro
