#include "resume/continued_line.hpp"

#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::AcceptedLine;
using metro::continue_line;
using metro::ContinuedLine;
using metro::EarlierRequest;
using metro::EarlierSample;
using metro::ExitCode;
using metro::FinishReason;
using metro::SampledToken;
using metro::test::expect_error;

namespace {

constexpr std::int64_t vocab_size = 10;

// A line for two completions of at most four tokens, with log-probabilities, also of the prompt.
AcceptedLine accepted_line() {
  AcceptedLine line;
  line.origin.file = "in.jsonl";
  line.origin.line = 3;
  line.origin.num_samples = 2;
  for (std::int32_t i = 0; i < 2; ++i) {
    metro::Request request;
    request.id = 20 + i;
    request.prompt = {1, 2, 3};
    request.max_tokens = 4;
    request.num_logprobs = 1;
    request.scores_prompt = i == 0;
    request.sampling.sample_index = i;
    request.sampling.stop = {"a"};
    line.samples.push_back(std::move(request));
  }
  return line;
}

SampledToken token(std::int32_t id) {
  return {id, -0.5F, {{id, -0.5F}}, -1};
}

EarlierRequest earlier_request() {
  return {{}, {{{token(4)}, FinishReason::none}, {{token(5), token(6)}, FinishReason::stop}}, {token(2), token(3)}};
}

void expect_damage(const EarlierRequest& earlier, const char* what) {
  expect_error(ExitCode::input, {"does not fit line 3 of in.jsonl", what, "--overwrite"},
               [&] { continue_line(accepted_line(), earlier, vocab_size); });
}

}  // namespace

TEST_CASE("a line that was not begun goes as it is") {
  const ContinuedLine result = continue_line(accepted_line(), {}, vocab_size);

  CHECK(result.requests == accepted_line().samples);
  CHECK(result.line.origin.line == 3);
  CHECK(result.line.samples.empty());
}

TEST_CASE("a begun line gives its finished completions, and requests with their tokens for the others") {
  const ContinuedLine result = continue_line(accepted_line(), earlier_request(), vocab_size);

  REQUIRE(result.requests.size() == 1);
  CHECK(result.requests[0].id == 20);
  CHECK(result.requests[0].generated == std::vector<SampledToken>{token(4)});
  CHECK(!result.requests[0].scores_prompt);  // that was done
  REQUIRE(result.line.samples.size() == 1);
  CHECK(result.line.samples[0].request.id == 21);
  CHECK(result.line.samples[0].tokens == std::vector<SampledToken>{token(5), token(6)});
  CHECK(result.line.samples[0].reason == FinishReason::stop);
  CHECK(result.line.prompt_scores == std::vector<SampledToken>{token(2), token(3)});
}

TEST_CASE("a prompt is scored again if the completion that scores it has no token") {
  EarlierRequest earlier = earlier_request();
  earlier.samples[0].tokens.clear();
  earlier.prompt_scores.clear();

  const ContinuedLine result = continue_line(accepted_line(), earlier, vocab_size);

  CHECK(result.requests.at(0).scores_prompt);
  CHECK(result.line.prompt_scores.empty());
}

TEST_CASE("tokens that cannot be of the line are refused") {
  const auto with = [](auto change) {
    EarlierRequest earlier = earlier_request();
    change(earlier);
    return earlier;
  };

  expect_damage(with([](EarlierRequest& e) { e.samples.pop_back(); }), "1 completions");
  expect_damage(with([](EarlierRequest& e) { e.samples[0].tokens[0].token = -1; }), "token -1");
  expect_damage(with([](EarlierRequest& e) { e.samples[0].tokens[0].token = vocab_size; }), "token 10");
  expect_damage(with([](EarlierRequest& e) { e.samples[1].tokens[0].likeliest.clear(); }), "0 log-probabilities");
  expect_damage(with([](EarlierRequest& e) { e.samples[1].tokens[0].likeliest[0].token = 99; }), "does not exist");
  expect_damage(with([](EarlierRequest& e) { e.samples[1].tokens[0].stop_string = 1; }), "stop string 1");
  expect_damage(with([](EarlierRequest& e) { e.samples[0].tokens.assign(4, token(1)); }), "4 tokens");
  expect_damage(with([](EarlierRequest& e) { e.samples[1].tokens.assign(5, token(1)); }), "5 tokens");
  expect_damage(with([](EarlierRequest& e) { e.samples[1].tokens.clear(); }), "0 tokens");
  expect_damage(with([](EarlierRequest& e) { e.samples[0].reason = FinishReason::length; }), "all its completions");
  expect_damage(with([](EarlierRequest& e) { e.prompt_scores.pop_back(); }), "1 scores");
  expect_damage(with([](EarlierRequest& e) { e.samples[0].tokens.clear(); }), "2 scores");
  expect_damage(with([](EarlierRequest& e) { e.prompt_scores[0].token = 10; }), "token 10");
}
