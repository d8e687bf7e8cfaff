// A generated token with what is reported about it.
#pragma once

#include <cstdint>
#include <vector>

namespace metro {

enum class FinishReason : std::int32_t { none = 0, stop = 1, length = 2 };

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;
};

struct SampledToken {
  std::int32_t token = 0;
  float logprob = 0.0F;                 // 0 unless the request asked for logprobs
  std::vector<TokenLogprob> likeliest;  // [num_logprobs], descending logprob, ties to the lower id
};

}  // namespace metro
