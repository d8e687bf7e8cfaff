// What a request changes in the logits of a row before a token is chosen: biases, excluded tokens, penalties.
#pragma once

#include "requests/scheduler.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class LogitAdjuster {
 public:
  LogitAdjuster(std::int64_t vocab_size, std::vector<std::int32_t> end_tokens);

  // False if adjust() would change nothing.
  bool is_needed(const Sequence& sequence) const;

  // In this order, each step in double and rounded to float once per token:
  //   l += bias                                                for the tokens of logit_bias
  //   l = -infinity                                            for end and stop tokens, before min_tokens are generated
  //   l = l > 0 ? l / repetition_penalty : l * repetition_penalty   for tokens of prompt and completion,
  //   l -= frequency_penalty * count; l -= presence_penalty    for tokens that stand count > 0 times in the completion
  // logits [vocab], those of the sequence's last row; in-out.
  void adjust(const Sequence& sequence, std::span<float> logits);

 private:
  void exclude_ends(const SamplingOptions& options, std::span<float> logits) const;
  void apply_penalties(const Sequence& sequence, std::span<float> logits);

  std::vector<std::int32_t> end_tokens_;
  std::vector<std::int32_t> num_generated_;  // [vocab], zero between calls
  std::vector<char> is_seen_;                // [vocab], zero between calls
};

}  // namespace metro
