// How the tokens of a request are chosen and where its completion ends: the sampling fields of a body, validated, with
// their neutral values as defaults (docs/requests.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct TokenBias {
  std::int32_t token = 0;
  double bias = 0.0;  // added to the logit

  bool operator==(const TokenBias&) const = default;
};

struct SamplingOptions {
  double temperature = 0.0;  // 0: the likeliest token
  double top_p = 1.0;        // in (0, 1]
  double min_p = 0.0;        // in [0, 1]
  std::int32_t top_k = 0;    // 0: all

  std::uint64_t seed = 0;
  std::int32_t sample_index = 0;  // which of the n completions of a line

  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;    // above 0
  std::vector<TokenBias> logit_bias;  // ascending tokens

  std::int32_t min_tokens = 0;               // end and stop tokens, and stop strings, only after so many tokens
  std::vector<std::int32_t> stop_token_ids;  // ascending
  std::vector<std::string> stop;             // none empty

  bool operator==(const SamplingOptions&) const = default;
};

}  // namespace metro
