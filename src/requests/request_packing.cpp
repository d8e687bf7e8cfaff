// Requests <-> bytes for the broadcast from rank 0. Layout, in the machine's own byte order (all ranks run one build):
// int64 number of requests, then for each: int64 id, max_tokens, ignore_eos, num_logprobs, prompt length; int32 tokens.
#include "base/error.hpp"
#include "requests/request.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>

namespace metro {

namespace {

using Header = std::array<std::int64_t, 5>;

// Copies `values` to the front of `room`, which then begins behind them.
template <class T>
void append(std::span<std::byte>& room, std::span<const T> values) {
  METRO_REQUIRE(room.size() >= values.size_bytes(), fmt::format("{} bytes of room", room.size()));
  if (!values.empty()) {
    std::memcpy(room.data(), values.data(), values.size_bytes());
  }
  room = room.subspan(values.size_bytes());
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

Request unpack_request(std::span<const std::byte>& bytes) {
  Header header{};
  extract<std::int64_t>(bytes, header);
  const auto [id, max_tokens, ignore_eos, num_logprobs, prompt_length] = header;
  constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
  METRO_REQUIRE(max_tokens >= 1 && max_tokens <= int32_max, fmt::format("max_tokens {}", max_tokens));
  METRO_REQUIRE(ignore_eos == 0 || ignore_eos == 1, fmt::format("ignore_eos {}", ignore_eos));
  METRO_REQUIRE(num_logprobs >= -1 && num_logprobs <= int32_max, fmt::format("num_logprobs {}", num_logprobs));
  // Checked before memory is allocated for it.
  const auto most_tokens = static_cast<std::int64_t>(bytes.size() / sizeof(std::int32_t));
  METRO_REQUIRE(prompt_length >= 1 && prompt_length <= most_tokens, fmt::format("prompt length {}", prompt_length));

  Request request;
  request.id = id;
  request.max_tokens = static_cast<std::int32_t>(max_tokens);
  request.ignore_eos = ignore_eos == 1;
  request.num_logprobs = static_cast<std::int32_t>(num_logprobs);
  request.prompt.resize(static_cast<std::size_t>(prompt_length));
  extract<std::int32_t>(bytes, request.prompt);
  return request;
}

}  // namespace

std::vector<std::byte> pack_requests(std::span<const Request> requests) {
  std::size_t num_bytes = sizeof(std::int64_t) + requests.size() * sizeof(Header);
  for (const Request& request : requests) {
    num_bytes += request.prompt.size() * sizeof(std::int32_t);
  }
  std::vector<std::byte> bytes(num_bytes);
  std::span<std::byte> room(bytes);
  const std::array<std::int64_t, 1> count{static_cast<std::int64_t>(requests.size())};
  append<std::int64_t>(room, count);
  for (const Request& request : requests) {
    const Header header{request.id, request.max_tokens, request.ignore_eos ? 1 : 0, request.num_logprobs,
                        static_cast<std::int64_t>(request.prompt.size())};
    append<std::int64_t>(room, header);
    append<std::int32_t>(room, request.prompt);
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
