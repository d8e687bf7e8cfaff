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
      likeliest_("likeliest tokens", rows_at_once),
      likeliest_logits_("logits of likeliest tokens", rows_at_once),
      adjusted_("adjusted logits", vocab_size),
      logprobs_("logprobs", vocab_size),
      chosen_("chosen token", 1),
      scored_token_("scored token", 1),
      scored_logprob_("logprob of a scored token", 1) {}

std::vector<SampledToken> Sampler::sample(const std::vector<SequenceRows>& rows, const float* logits) {
  const std::int64_t num_rows = std::count_if(rows.begin(), rows.end(), [](const auto& one) { return one.samples; });
  std::vector<SampledToken> sampled;
  std::int64_t row_idx = 0;  // of the logits
  for (const SequenceRows& one : rows) {
    if (!one.samples) {
      continue;
    }
    if (row_idx % rows_at_once == 0) {
      find_likeliest(logits, std::min(rows_at_once, num_rows - row_idx));
    }
    const Request& request = one.sequence->request;
    SampledToken next;
    next.token = next_token(*one.sequence, logits, row_idx % rows_at_once);
    if (request.num_logprobs >= 0) {
      next = scored(logits, next.token, request.num_logprobs);
    }
    if (!request.sampling.stop.empty()) {
      next.stop_string = found_stop_string(*one.sequence, next.token);
    }
    sampled.push_back(std::move(next));
    logits += vocab_size_;
    ++row_idx;
  }
  return sampled;
}

// Of some rows at a time, so that the host waits once for all of them.
void Sampler::find_likeliest(const float* logits, std::int64_t num_rows) {
  argmax(logits, num_rows, vocab_size_, likeliest_.kernels());
  pick(logits, num_rows, vocab_size_, likeliest_.kernels(), likeliest_logits_.kernels());
  likeliest_.to_host(num_rows);
  likeliest_logits_.to_host(num_rows);
  wait_for_kernels();
}

std::int32_t Sampler::next_token(const Sequence& sequence, const float* logits, std::int64_t likeliest_idx) {
  if (!std::isfinite(likeliest_logits_[likeliest_idx])) {
    throw Error(ExitCode::internal, fmt::format("request {}: the logits after position {} are not finite",
                                                sequence.request.id, sequence.tokens.size() - 1));
  }
  const SamplingOptions& options = sequence.request.sampling;
  const bool is_adjusted = adjuster_.is_needed(sequence);
  if (!is_adjusted && options.temperature == 0.0) {
    return likeliest_[likeliest_idx];
  }
  if (is_adjusted) {
    // The host knows the tokens of a sequence: it adjusts its own copy of the row.
    queue_copy_to_host(adjusted_.host(), logits, adjusted_.num_bytes());
    wait_for_kernels();
    adjuster_.adjust(sequence, adjusted_.span());
    adjusted_.to_kernels(vocab_size_);
    logits = adjusted_.kernels();
  }
  if (options.temperature == 0.0) {
    argmax(logits, 1, vocab_size_, chosen_.kernels());
    chosen_.to_host(1);
    wait_for_kernels();
    return chosen_[0];
  }
  const auto position = static_cast<std::int64_t>(sequence.tokens.size());
  const double uniform = uniform_number(options.seed, options.sample_index, position);
  return chooser_.choose(std::span(logits, static_cast<std::size_t>(vocab_size_)), options, uniform);
}

SampledToken Sampler::scored(const float* logits, std::int32_t token, std::int32_t num_logprobs) {
  if (num_logprobs > top_ids_.size()) {
    top_ids_ = Mirror<std::int32_t>("ids of top logprobs", num_logprobs);
    top_logprobs_ = Mirror<float>("top logprobs", num_logprobs);
  }
  scored_token_[0] = token;
  scored_token_.to_kernels(1);
  log_softmax(logits, 1, vocab_size_, logprobs_.data());
  pick(logprobs_.data(), 1, vocab_size_, scored_token_.kernels(), scored_logprob_.kernels());
  top_logprobs(logprobs_.data(), 1, vocab_size_, num_logprobs, top_ids_.kernels(), top_logprobs_.kernels());
  scored_logprob_.to_host(1);
  top_ids_.to_host(num_logprobs);
  top_logprobs_.to_host(num_logprobs);
  wait_for_kernels();

  SampledToken scored;
  scored.token = token;
  scored.logprob = scored_logprob_[0];
  for (std::int64_t i = 0; i < num_logprobs; ++i) {
    scored.likeliest.push_back({top_ids_[i], top_logprobs_[i]});
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
