#include "base/error.hpp"
#include "requests/request.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <limits>

using metro::Bug;
using metro::pack_requests;
using metro::Request;
using metro::unpack_requests;

namespace {

Request example(std::int64_t id, std::vector<std::int32_t> prompt) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = 7;
  return request;
}

}  // namespace

TEST_CASE("unpacking gives the requests that were packed") {
  Request full = example(std::int64_t{1} << 40, {0, 5, std::numeric_limits<std::int32_t>::max()});
  full.max_tokens = std::numeric_limits<std::int32_t>::max();
  full.ignore_eos = true;
  full.num_logprobs = 20;
  const std::vector<Request> requests{full, example(0, {9})};

  const auto result = unpack_requests(pack_requests(requests));

  REQUIRE(result.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(result[i].id == requests[i].id);
    CHECK(result[i].prompt == requests[i].prompt);
    CHECK(result[i].max_tokens == requests[i].max_tokens);
    CHECK(result[i].ignore_eos == requests[i].ignore_eos);
    CHECK(result[i].num_logprobs == requests[i].num_logprobs);
  }
}

TEST_CASE("no requests are packed too") {
  CHECK(unpack_requests(pack_requests({})).empty());
}

TEST_CASE("bytes that are cut short or too long are a bug") {
  const std::vector<Request> requests{example(1, {1, 2, 3}), example(2, {4})};
  auto bytes = pack_requests(requests);

  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_THROWS_AS(unpack_requests(std::span(bytes).first(length)), Bug);
  }
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS(unpack_requests(bytes), Bug);
}

TEST_CASE("a packed value that no request has is a bug") {
  const std::vector<Request> requests{example(1, {1})};
  const auto with_word = [&](std::size_t word_idx, std::int64_t value) {
    auto bytes = pack_requests(requests);
    std::memcpy(bytes.data() + word_idx * sizeof value, &value, sizeof value);
    return bytes;
  };

  // Words: count, then id, max_tokens, ignore_eos, num_logprobs, prompt length.
  CHECK_NOTHROW(unpack_requests(with_word(1, -5)));
  CHECK_THROWS_AS(unpack_requests(with_word(0, -1)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(2, 0)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(3, 2)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(4, -2)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(5, 0)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(5, std::numeric_limits<std::int64_t>::max())), Bug);
}
