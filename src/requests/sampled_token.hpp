// A generated token with what is reported about it.
#pragma once

#include "base/byte_packing.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Why a completion ended. For the caller all but `length` are "stop".
enum class FinishReason : std::int32_t {
  none = 0,
  stop = 1,         // an end token of the model
  length = 2,       // max_tokens
  stop_token = 3,   // a token of the request's stop_token_ids
  stop_string = 4,  // a string of the request's stop
};

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;

  bool operator==(const TokenLogprob&) const = default;
};

struct SampledToken {
  std::int32_t token = 0;
  float logprob = 0.0F;                 // 0 unless the request asked for logprobs
  std::vector<TokenLogprob> likeliest;  // [num_logprobs], descending logprob, ties to the lower id
  std::int32_t stop_string = -1;        // which of the request's stop strings ends with this token; -1: none

  bool operator==(const SampledToken&) const = default;
};

// Tokens as bytes and back. unpack_tokens throws MalformedBytes.
void pack_tokens(std::span<const SampledToken> tokens, ByteWriter& bytes);
std::vector<SampledToken> unpack_tokens(ByteReader& bytes);

}  // namespace metro
