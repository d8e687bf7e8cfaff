#include "requests/sampled_token.hpp"

namespace metro {

void pack_tokens(std::span<const SampledToken> tokens, ByteWriter& bytes) {
  bytes.value(static_cast<std::int64_t>(tokens.size()));
  for (const SampledToken& token : tokens) {
    bytes.value(token.token);
    bytes.value(token.logprob);
    bytes.value(token.stop_string);
    bytes.values(std::span<const TokenLogprob>(token.likeliest));
  }
}

std::vector<SampledToken> unpack_tokens(ByteReader& bytes) {
  constexpr std::size_t least_bytes = 3 * sizeof(std::int32_t) + sizeof(std::int64_t);
  const std::int64_t num_tokens = bytes.count(least_bytes, "tokens");
  std::vector<SampledToken> tokens;
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    SampledToken token;
    token.token = bytes.value<std::int32_t>();
    token.logprob = bytes.value<float>();
    token.stop_string = bytes.value<std::int32_t>();
    token.likeliest = bytes.values<TokenLogprob>("likeliest tokens");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace metro
