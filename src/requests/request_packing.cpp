// Requests <-> bytes for the broadcast from rank 0. Layout: int64 number of requests, then for each
//   int64  id, max_tokens, ignore_eos, num_logprobs, scores_prompt, top_k, sample_index, min_tokens, seed
//   double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty
// and, each behind an int64 with its length: tokens with a bias; biases; stop tokens; stop strings (each with a length
// of its own); tokens of an earlier part of the run; prompt.
#include "base/byte_packing.hpp"
#include "base/error.hpp"
#include "requests/request.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

namespace metro {

namespace {

using Header = std::array<std::int64_t, 9>;
using Numbers = std::array<double, 6>;

std::int32_t checked(std::int64_t value, std::int64_t minimum, std::int64_t maximum, const char* what) {
  METRO_REQUIRE(value >= minimum && value <= maximum, fmt::format("{} {}", what, value));
  return static_cast<std::int32_t>(value);
}

void pack_biases(const std::vector<TokenBias>& biases, ByteWriter& bytes) {
  std::vector<std::int32_t> tokens;
  std::vector<double> values;
  for (const TokenBias& one : biases) {
    tokens.push_back(one.token);
    values.push_back(one.bias);
  }
  bytes.values(std::span<const std::int32_t>(tokens));
  bytes.values(std::span<const double>(values));
}

void pack_request(const Request& request, ByteWriter& bytes) {
  const SamplingOptions& sampling = request.sampling;
  bytes.value(Header{request.id, request.max_tokens, request.ignore_eos ? 1 : 0, request.num_logprobs,
                     request.scores_prompt ? 1 : 0, sampling.top_k, sampling.sample_index, sampling.min_tokens,
                     static_cast<std::int64_t>(sampling.seed)});
  bytes.value(Numbers{sampling.temperature, sampling.top_p, sampling.min_p, sampling.presence_penalty,
                      sampling.frequency_penalty, sampling.repetition_penalty});
  pack_biases(sampling.logit_bias, bytes);
  bytes.values(std::span<const std::int32_t>(sampling.stop_token_ids));
  bytes.value(static_cast<std::int64_t>(sampling.stop.size()));
  for (const std::string& text : sampling.stop) {
    bytes.text(text);
  }
  pack_tokens(request.generated, bytes);
  bytes.values(std::span<const std::int32_t>(request.prompt));
}

void unpack_numbers(ByteReader& bytes, SamplingOptions& sampling) {
  const auto numbers = bytes.value<Numbers>();
  sampling.temperature = numbers[0];
  sampling.top_p = numbers[1];
  sampling.min_p = numbers[2];
  sampling.presence_penalty = numbers[3];
  sampling.frequency_penalty = numbers[4];
  sampling.repetition_penalty = numbers[5];
}

void unpack_lists(ByteReader& bytes, SamplingOptions& sampling) {
  const auto tokens = bytes.values<std::int32_t>("tokens with a bias");
  const auto biases = bytes.values<double>("biases");
  METRO_REQUIRE(tokens.size() == biases.size(), fmt::format("{} tokens, {} biases", tokens.size(), biases.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    sampling.logit_bias.push_back({tokens[i], biases[i]});
  }
  sampling.stop_token_ids = bytes.values<std::int32_t>("stop tokens");
  const std::int64_t num_strings = bytes.count(sizeof(std::int64_t), "stop strings");
  for (std::int64_t i = 0; i < num_strings; ++i) {
    sampling.stop.push_back(bytes.text("bytes of a stop string"));
  }
}

Request unpack_request(ByteReader& bytes) {
  const auto [id, max_tokens, ignore_eos, num_logprobs, scores_prompt, top_k, sample_index, min_tokens, seed] =
      bytes.value<Header>();
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  Request request;
  request.id = id;
  request.max_tokens = checked(max_tokens, 1, most, "max_tokens");
  request.ignore_eos = checked(ignore_eos, 0, 1, "ignore_eos") == 1;
  request.num_logprobs = checked(num_logprobs, -1, most, "num_logprobs");
  request.scores_prompt = checked(scores_prompt, 0, 1, "scores_prompt") == 1;
  SamplingOptions& sampling = request.sampling;
  sampling.top_k = checked(top_k, 0, most, "top_k");
  sampling.sample_index = checked(sample_index, 0, most, "sample_index");
  sampling.min_tokens = checked(min_tokens, 0, most, "min_tokens");
  sampling.seed = static_cast<std::uint64_t>(seed);
  unpack_numbers(bytes, sampling);
  unpack_lists(bytes, sampling);
  request.generated = unpack_tokens(bytes);
  request.prompt = bytes.values<std::int32_t>("prompt tokens");
  METRO_REQUIRE(!request.prompt.empty(), fmt::format("request {} has no prompt", id));
  return request;
}

}  // namespace

std::vector<std::byte> pack_requests(std::span<const Request> requests) {
  ByteWriter bytes;
  bytes.value(static_cast<std::int64_t>(requests.size()));
  for (const Request& request : requests) {
    pack_request(request, bytes);
  }
  return bytes.take();
}

std::vector<Request> unpack_requests(std::span<const std::byte> packed) {
  ByteReader bytes(packed);
  const std::int64_t num_requests = bytes.count(sizeof(Header) + sizeof(Numbers), "requests");
  std::vector<Request> requests;
  for (std::int64_t request_idx = 0; request_idx < num_requests; ++request_idx) {
    requests.push_back(unpack_request(bytes));
  }
  METRO_REQUIRE(bytes.at_end(), fmt::format("{} bytes after the last request", bytes.num_left()));
  return requests;
}

}  // namespace metro
