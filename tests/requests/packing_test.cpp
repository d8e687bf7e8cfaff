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
  full.scores_prompt = true;
  full.sampling.temperature = 0.1;
  full.sampling.top_p = 0.2;
  full.sampling.min_p = 0.3;
  full.sampling.top_k = std::numeric_limits<std::int32_t>::max();
  full.sampling.seed = std::numeric_limits<std::uint64_t>::max();
  full.sampling.sample_index = 127;
  full.sampling.presence_penalty = -2.0;
  full.sampling.frequency_penalty = 1e-300;
  full.sampling.repetition_penalty = 1.7;
  full.sampling.logit_bias = {{3, -100.0}, {std::numeric_limits<std::int32_t>::max(), 0.1}};
  full.sampling.min_tokens = 4;
  full.sampling.stop_token_ids = {0, 8};
  full.sampling.stop = {"a", std::string("\0\xC3\xA9", 3), std::string(1000, 'x')};
  full.generated = {{7, -0.5F, {{7, -0.5F}, {8, -1.5F}}, 2}, {0, 0.0F, {}, -1}};
  const std::vector<Request> requests{full, example(0, {9})};

  const auto result = unpack_requests(pack_requests(requests));

  REQUIRE(result.size() == 2);
  CHECK((result[0] == requests[0]));
  CHECK((result[1] == requests[1]));
  CHECK(!(result[0] == result[1]));
}

TEST_CASE("no requests are packed too") {
  CHECK(unpack_requests(pack_requests({})).empty());
}

TEST_CASE("bytes that are cut short or too long are a bug") {
  std::vector<Request> requests{example(1, {1, 2, 3}), example(2, {4})};
  requests[1].sampling.logit_bias = {{3, -100.0}};
  requests[1].sampling.stop_token_ids = {5};
  requests[1].sampling.stop = {"ab", "c"};
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

  // Words: count; id, max_tokens, ignore_eos, num_logprobs, scores_prompt, top_k, sample_index, min_tokens, seed; six
  // numbers; number of tokens with a bias, biases, stop tokens, stop strings, earlier tokens, prompt tokens.
  CHECK_NOTHROW(unpack_requests(with_word(1, -5)));
  CHECK_THROWS_AS(unpack_requests(with_word(0, -1)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(2, 0)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(3, 2)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(4, -2)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(5, 2)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(6, -1)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(7, std::int64_t{1} << 31)), Bug);
  CHECK_THROWS_AS(unpack_requests(with_word(8, -1)), Bug);
  CHECK_NOTHROW(unpack_requests(with_word(9, -1)));
  CHECK_THROWS_AS(unpack_requests(with_word(21, 0)), Bug);
  for (const std::size_t word_idx : {16, 17, 18, 19, 20, 21}) {
    CHECK_THROWS_AS(unpack_requests(with_word(word_idx, -1)), Bug);
    CHECK_THROWS_AS(unpack_requests(with_word(word_idx, 2)), Bug);
    CHECK_THROWS_AS(unpack_requests(with_word(word_idx, std::numeric_limits<std::int64_t>::max())), Bug);
  }
}
