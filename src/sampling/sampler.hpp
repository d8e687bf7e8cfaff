// From the logits of this rank's rows to the next tokens: chooses them, reports log-probabilities, and watches for stop
// strings. What it gives for a sequence depends on that sequence alone.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"
#include "requests/stop_watch.hpp"
#include "sampling/adjusted_logits.hpp"
#include "sampling/token_choice.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace metro {

class Sampler {
 public:
  // Called when the first request with stop strings comes up; what it returns must outlive the sampler.
  using TokenizerSource = std::function<const Tokenizer&()>;

  Sampler(std::int64_t vocab_size, std::vector<std::int32_t> end_tokens, TokenizerSource tokenizer);

  // The next token of each of `rows` that samples. logits [number of those, vocab], memory of kernels, unchanged. Waits
  // for the kernels: only the likeliest tokens come to the host, and what a request's options need beyond them. Throws
  // Error(internal) if logits are not finite.
  std::vector<SampledToken> sample(const std::vector<SequenceRows>& rows, const float* logits);

  // `token` with its log-probability after a row with these logits [vocab], memory of kernels, and the likeliest there;
  // num_logprobs >= 0. From the logits as they are, without biases, penalties and temperature. Waits for the kernels.
  SampledToken scored(const float* logits, std::int32_t token, std::int32_t num_logprobs);

  std::int64_t vocab_size() const { return vocab_size_; }

  // Drops what is kept about a request that has finished.
  void forget(std::int64_t request_id) { watches_.erase(request_id); }

 private:
  // Rows whose likeliest tokens are looked for at a time.
  static constexpr std::int64_t rows_at_once = 256;
  void find_likeliest(const float* logits, std::int64_t num_rows);
  std::int32_t next_token(const Sequence& sequence, const float* logits, std::int64_t likeliest_idx);
  std::int32_t found_stop_string(const Sequence& sequence, std::int32_t next_token);

  std::int64_t vocab_size_;
  TokenizerSource tokenizer_;
  LogitAdjuster adjuster_;
  TokenChooser chooser_;
  Mirror<std::int32_t> likeliest_;             // [rows_at_once]
  Mirror<float> likeliest_logits_;             // [rows_at_once]
  Mirror<float> adjusted_;                     // [vocab]
  Buffer<float> logprobs_;                     // [vocab]
  Mirror<std::int32_t> chosen_;                // [1] out of adjusted logits
  Mirror<std::int32_t> scored_token_;          // [1]
  Mirror<float> scored_logprob_;               // [1]
  Mirror<std::int32_t> top_ids_;               // [as many as a request has asked for]
  Mirror<float> top_logprobs_;                 // likewise
  std::map<std::int64_t, StopWatch> watches_;  // by request
};

}  // namespace metro
