// Where completions end.
#include "requests/scheduler.hpp"

#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

using metro::FinishReason;
using metro::Request;
using metro::SampledToken;
using metro::Scheduler;
using metro::test::describe;
using metro::test::make_request;
using metro::test::roomy;

TEST_CASE("a completion ends at an end token, at max_tokens, or only there with ignore_eos") {
  Scheduler scheduler(roomy(2));
  Request ignoring = make_request(2, 1, 2);
  ignoring.ignore_eos = true;
  scheduler.add({make_request(0, 1, 5), make_request(1, 1, 2), ignoring});
  SampledToken special;
  special.token = 99;
  special.logprob = -0.5F;
  const SampledToken plain{7, -1.0F, {{7, -1.0F}}};

  REQUIRE(describe(scheduler.plan_step()) == "P [0:0+1! 2:0+1!] [1:0+1!]");
  const auto first = scheduler.apply({{special, special}, {plain}});
  REQUIRE(describe(scheduler.plan_step()) == "D [2:1+1!] [1:1+1!]");
  const auto second = scheduler.apply({{plain}, {special}});

  REQUIRE(first.size() == 1);
  CHECK(first[0].request.id == 0);
  CHECK(first[0].request.prompt == make_request(0, 1, 5).prompt);
  CHECK(first[0].reason == FinishReason::stop);
  REQUIRE(first[0].tokens.size() == 1);
  CHECK(first[0].tokens[0].token == 99);
  CHECK(first[0].tokens[0].logprob == -0.5F);
  REQUIRE(second.size() == 2);
  CHECK(second[0].request.id == 2);
  CHECK(second[0].reason == FinishReason::length);
  CHECK(second[0].tokens.size() == 2);
  CHECK(second[0].tokens[1].likeliest.size() == 1);
  // The last token that fits is an end token: it counts as one.
  CHECK(second[1].request.id == 1);
  CHECK(second[1].reason == FinishReason::stop);
  CHECK(scheduler.idle());
}

TEST_CASE("a completion ends at a stop token or at the stop string its rank has found, the token first") {
  Request stopping = make_request(0, 1, 3);
  stopping.sampling.stop_token_ids = {5, 6};
  stopping.sampling.stop = {"a", "b"};
  const auto reason_after = [&](const std::vector<SampledToken>& tokens, bool ignore_eos = false) {
    Scheduler scheduler(roomy(1));
    Request request = stopping;
    request.ignore_eos = ignore_eos;
    scheduler.add({request});
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      scheduler.plan_step();
      const auto finished = scheduler.apply({{tokens[i]}});
      REQUIRE(finished.size() == (i + 1 == tokens.size() ? 1U : 0U));
      if (!finished.empty()) {
        CHECK(finished[0].tokens.back().stop_string == tokens.back().stop_string);
        return finished[0].reason;
      }
    }
    return FinishReason::none;
  };
  const SampledToken plain{7, 0.0F, {}};

  CHECK(reason_after({plain, {6, 0.0F, {}}}) == FinishReason::stop_token);
  CHECK(reason_after({plain, {7, 0.0F, {}, 1}}) == FinishReason::stop_string);
  CHECK(reason_after({{5, 0.0F, {}, 0}}) == FinishReason::stop_token);
  CHECK(reason_after({{99, 0.0F, {}, 0}}) == FinishReason::stop);
  CHECK(reason_after({{99, 0.0F, {}, 0}}, true) == FinishReason::stop_string);
  // At the last token that fits, too.
  CHECK(reason_after({plain, plain, {7, 0.0F, {}, 0}}) == FinishReason::stop_string);
  CHECK(reason_after({plain, plain, plain}) == FinishReason::length);
}

TEST_CASE("nothing but max_tokens ends a completion before min_tokens") {
  Request request = make_request(0, 1, 4);
  request.sampling.min_tokens = 3;
  request.sampling.stop_token_ids = {5};
  Scheduler scheduler(roomy(1));
  scheduler.add({request});
  const auto finished_with = [&](const SampledToken& token) {
    scheduler.plan_step();
    return scheduler.apply({{token}});
  };

  CHECK(finished_with({99, 0.0F, {}}).empty());
  CHECK(finished_with({5, 0.0F, {}, 0}).empty());
  const auto finished = finished_with({5, 0.0F, {}});

  REQUIRE(finished.size() == 1);
  CHECK(finished[0].reason == FinishReason::stop_token);
}
