// Requests <-> bytes for the broadcast from rank 0. Layout, in the machine's own byte order (all ranks run one build):
// int64 number of requests, then for each
//   int64  id, max_tokens, ignore_eos, num_logprobs, prompt length, scores_prompt, top_k, sample_index, min_tokens,
//          seed, number of biases, of stop tokens, of stop strings
//   double temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty
//   int32  prompt; stop tokens; tokens with a bias    double biases    each stop string: int64 length, bytes
#include "base/error.hpp"
#include "requests/request.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

namespace metro {

namespace {

using Header = std::array<std::int64_t, 13>;
using Numbers = std::array<double, 6>;

template <class T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const std::size_t old_size = bytes.size();
  bytes.resize(old_size + values.size_bytes());
  if (!values.empty()) {
    std::memcpy(bytes.data() + old_size, values.data(), values.size_bytes());
  }
}

template <class T>
void extract(std::span<const std::byte>& bytes, std::span<T> values) {
  METRO_REQUIRE(bytes.size() >= values.size_bytes(),
                fmt::format("{} bytes left, {} wanted", bytes.size(), values.size_bytes()));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size_bytes());
  }
  bytes = bytes.subspan(values.size_bytes());
}

// So many values; checked before memory is allocated for them.
template <class T, class Container = std::vector<T>>
Container extract_many(std::span<const std::byte>& bytes, std::int64_t count, const char* what) {
  const auto most = static_cast<std::int64_t>(bytes.size() / sizeof(T));
  METRO_REQUIRE(count >= 0 && count <= most, fmt::format("{} {}", count, what));
  Container values(static_cast<std::size_t>(count), T());
  extract<T>(bytes, values);
  return values;
}

std::int32_t checked(std::int64_t value, std::int64_t minimum, std::int64_t maximum, const char* what) {
  METRO_REQUIRE(value >= minimum && value <= maximum, fmt::format("{} {}", what, value));
  return static_cast<std::int32_t>(value);
}

void pack_request(std::vector<std::byte>& bytes, const Request& request) {
  const SamplingOptions& sampling = request.sampling;
  const auto length = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  const Header header{request.id,
                      request.max_tokens,
                      request.ignore_eos ? 1 : 0,
                      request.num_logprobs,
                      length(request.prompt),
                      request.scores_prompt ? 1 : 0,
                      sampling.top_k,
                      sampling.sample_index,
                      sampling.min_tokens,
                      static_cast<std::int64_t>(sampling.seed),
                      length(sampling.logit_bias),
                      length(sampling.stop_token_ids),
                      length(sampling.stop)};
  const Numbers numbers{
      sampling.temperature,       sampling.top_p, sampling.min_p, sampling.presence_penalty, sampling.frequency_penalty,
      sampling.repetition_penalty};
  append<std::int64_t>(bytes, header);
  append<double>(bytes, numbers);
  append<std::int32_t>(bytes, request.prompt);
  append<std::int32_t>(bytes, sampling.stop_token_ids);
  for (const TokenBias& one : sampling.logit_bias) {
    append<std::int32_t>(bytes, {&one.token, 1});
  }
  for (const TokenBias& one : sampling.logit_bias) {
    append<double>(bytes, {&one.bias, 1});
  }
  for (const std::string& text : sampling.stop) {
    const std::int64_t num_bytes = length(text);
    append<std::int64_t>(bytes, {&num_bytes, 1});
    append<char>(bytes, text);
  }
}

void unpack_numbers(std::span<const std::byte>& bytes, SamplingOptions& sampling) {
  Numbers numbers{};
  extract<double>(bytes, numbers);
  sampling.temperature = numbers[0];
  sampling.top_p = numbers[1];
  sampling.min_p = numbers[2];
  sampling.presence_penalty = numbers[3];
  sampling.frequency_penalty = numbers[4];
  sampling.repetition_penalty = numbers[5];
}

Request unpack_request(std::span<const std::byte>& bytes) {
  Header header{};
  extract<std::int64_t>(bytes, header);
  const auto [id, max_tokens, ignore_eos, num_logprobs, prompt_length, scores_prompt, top_k, sample_index, min_tokens,
              seed, num_biases, num_stop_tokens, num_stop_strings] = header;
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

  METRO_REQUIRE(prompt_length >= 1, fmt::format("prompt length {}", prompt_length));
  request.prompt = extract_many<std::int32_t>(bytes, prompt_length, "prompt tokens");
  sampling.stop_token_ids = extract_many<std::int32_t>(bytes, num_stop_tokens, "stop tokens");
  const auto tokens = extract_many<std::int32_t>(bytes, num_biases, "tokens with a bias");
  const auto biases = extract_many<double>(bytes, num_biases, "biases");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    sampling.logit_bias.push_back({tokens[i], biases[i]});
  }
  METRO_REQUIRE(num_stop_strings >= 0, fmt::format("{} stop strings", num_stop_strings));
  for (std::int64_t i = 0; i < num_stop_strings; ++i) {
    std::array<std::int64_t, 1> num_bytes{};
    extract<std::int64_t>(bytes, num_bytes);
    sampling.stop.push_back(extract_many<char, std::string>(bytes, num_bytes[0], "bytes of a stop string"));
  }
  return request;
}

}  // namespace

std::vector<std::byte> pack_requests(std::span<const Request> requests) {
  std::vector<std::byte> bytes;
  const auto count = static_cast<std::int64_t>(requests.size());
  append<std::int64_t>(bytes, {&count, 1});
  for (const Request& request : requests) {
    pack_request(bytes, request);
  }
  return bytes;
}

std::vector<Request> unpack_requests(std::span<const std::byte> bytes) {
  std::array<std::int64_t, 1> count{};
  extract<std::int64_t>(bytes, count);
  METRO_REQUIRE(count[0] >= 0, fmt::format("{} requests", count[0]));
  std::vector<Request> requests;
  for (std::int64_t request_idx = 0; request_idx < count[0]; ++request_idx) {
    requests.push_back(unpack_request(bytes));
  }
  METRO_REQUIRE(bytes.empty(), fmt::format("{} bytes after the last request", bytes.size()));
  return requests;
}

}  // namespace metro
