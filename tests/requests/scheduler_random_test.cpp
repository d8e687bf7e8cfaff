// Properties over random workloads: everything finishes with the right tokens whatever the limits, limits are kept,
// and two instances stay in lockstep.
#include "requests/scheduler.hpp"

#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <random>

using metro::Digest;
using metro::FinishedSequence;
using metro::FinishReason;
using metro::Request;
using metro::Scheduler;
using metro::SchedulerLimits;
using metro::StepKind;
using metro::StepPlan;
using metro::test::make_request;
using metro::test::model_token;
using metro::test::PlanChecker;

namespace {

using Random = std::mt19937_64;

// Equal on every machine, unlike the library's distributions.
std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

constexpr std::int64_t max_context = 64;

SchedulerLimits random_limits(Random& random) {
  SchedulerLimits limits;
  limits.num_ranks = between(random, 1, 5);
  limits.max_sequences_per_rank = between(random, 1, 6);
  limits.prefill_chunk = between(random, 1, 20);
  limits.prefill_min = static_cast<double>(between(random, 0, 4)) / 4.0;
  limits.block_tokens = between(random, 1, 20);
  const std::int64_t least_blocks = (max_context + limits.block_tokens - 1) / limits.block_tokens;
  limits.kv_blocks_per_rank = least_blocks + between(random, 0, 3 * least_blocks);
  limits.end_tokens = {3, 17};
  return limits;
}

std::vector<Request> random_requests(Random& random) {
  std::vector<Request> requests;
  const std::int64_t num_requests = between(random, 1, 60);
  const std::int64_t longest = between(random, 1, 30);
  for (std::int64_t id = 0; id < num_requests; ++id) {
    const auto max_tokens = static_cast<std::int32_t>(between(random, 1, longest));
    requests.push_back(make_request(id, between(random, 1, max_context - max_tokens), max_tokens));
    requests.back().ignore_eos = between(random, 0, 3) == 0;
  }
  return requests;
}

// What the made-up model generates for a request, one token after the other.
FinishedSequence expected_completion(const Request& request) {
  FinishedSequence expected{request, {}, FinishReason::none};
  auto position = static_cast<std::int64_t>(request.prompt.size()) - 1;
  while (expected.reason == FinishReason::none) {
    metro::SampledToken sampled;
    sampled.token = model_token(request.id, position);
    expected.tokens.push_back(sampled);
    ++position;
    const bool is_end = sampled.token == 3 || sampled.token == 17;
    if (is_end && !request.ignore_eos) {
      expected.reason = FinishReason::stop;
    } else if (static_cast<std::int32_t>(expected.tokens.size()) == request.max_tokens) {
      expected.reason = FinishReason::length;
    }
  }
  return expected;
}

void check_equal(const FinishedSequence& result, const FinishedSequence& expected) {
  REQUIRE(result.tokens.size() == expected.tokens.size());
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    REQUIRE(result.tokens[i].token == expected.tokens[i].token);
  }
  REQUIRE(result.reason == expected.reason);
  REQUIRE(result.request.prompt == expected.request.prompt);
}

}  // namespace

TEST_CASE("random workloads finish with the right tokens within the limits, in bounded steps") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const SchedulerLimits limits = random_limits(random);
    const auto requests = random_requests(random);
    CAPTURE(seed);
    Scheduler scheduler(limits);
    PlanChecker checker(limits);
    std::int64_t most_steps = 0;
    for (const Request& request : requests) {
      most_steps += static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
    }

    // Requests come in windows, some of them while others run.
    std::size_t num_added = 0;
    std::size_t num_finished = 0;
    std::vector<bool> is_finished(requests.size(), false);
    while (num_finished < requests.size()) {
      if (num_added < requests.size() && (scheduler.idle() || between(random, 0, 2) == 0)) {
        const auto window = static_cast<std::size_t>(between(random, 1, 12));
        const std::size_t end = std::min(requests.size(), num_added + window);
        scheduler.add({requests.begin() + static_cast<std::ptrdiff_t>(num_added),
                       requests.begin() + static_cast<std::ptrdiff_t>(end)});
        num_added = end;
      }
      const StepPlan plan = scheduler.plan_step();
      checker.check(plan);
      --most_steps;
      REQUIRE(most_steps >= 0);
      for (const FinishedSequence& finished : scheduler.apply(metro::test::sample(plan))) {
        checker.finish(finished);
        const auto id = static_cast<std::size_t>(finished.request.id);
        REQUIRE(!is_finished[id]);
        is_finished[id] = true;
        ++num_finished;
        check_equal(finished, expected_completion(requests[id]));
      }
    }
    REQUIRE(scheduler.idle());
    REQUIRE(scheduler.num_running() == 0);
  }
}

TEST_CASE("two instances with the same calls have the same plans and digests") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const SchedulerLimits limits = random_limits(random);
    const auto requests = random_requests(random);
    CAPTURE(seed);
    Scheduler first(limits);
    Scheduler second(limits);
    first.add(requests);
    second.add(requests);

    Digest before = first.digest();
    while (!first.idle()) {
      const StepPlan plan = first.plan_step();
      const StepPlan same_plan = second.plan_step();
      REQUIRE(metro::test::describe(plan) == metro::test::describe(same_plan));
      REQUIRE(first.digest() == second.digest());
      first.apply(metro::test::sample(plan));
      second.apply(metro::test::sample(same_plan));
      REQUIRE(first.digest() == second.digest());
      REQUIRE(first.digest() != before);
      before = first.digest();
    }
    REQUIRE(second.idle());
  }
}

TEST_CASE("the digest differs for ever after one token, one request or one call differed") {
  SchedulerLimits limits;
  limits.max_sequences_per_rank = 2;
  limits.kv_blocks_per_rank = 8;
  limits.prefill_chunk = 8;
  const auto run = [&](std::int32_t first_token, std::int32_t max_tokens, std::int32_t prompt_token, bool plans_again,
                       double temperature = 0.0) {
    Scheduler scheduler(limits);
    Request request = make_request(0, 4, max_tokens);
    request.prompt[1] = prompt_token;
    request.sampling.temperature = temperature;
    scheduler.add({request});
    scheduler.plan_step();
    scheduler.apply({{metro::SampledToken{first_token, 0.0F, {}}}});
    for (int i = 0; i < 3; ++i) {
      scheduler.plan_step();
      scheduler.apply({{metro::SampledToken{5, 0.0F, {}}}});
    }
    if (plans_again) {
      scheduler.plan_step();
    }
    return scheduler.digest();
  };

  CHECK(run(1, 9, 2, false) == run(1, 9, 2, false));
  CHECK(run(1, 9, 2, false) != run(2, 9, 2, false));
  CHECK(run(1, 9, 2, false) != run(1, 8, 2, false));
  CHECK(run(1, 9, 2, false) != run(1, 9, 3, false));
  CHECK(run(1, 9, 2, false) != run(1, 9, 2, true));
  CHECK(run(1, 9, 2, false) != run(1, 9, 2, false, 0.5));
}

TEST_CASE("a decoding sequence goes on however many completions of one token come in") {
  SchedulerLimits limits;
  limits.num_ranks = 2;
  limits.max_sequences_per_rank = 4;
  limits.prefill_chunk = 4;
  limits.prefill_min = 0.25;
  limits.kv_blocks_per_rank = 64;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 4, 50)});
  // Without the bound on prefill the first sequence would never decode: the queue is filled before every step.
  std::int64_t next_id = 1;
  bool is_finished = false;
  std::int64_t num_steps = 0;
  while (!is_finished) {
    while (scheduler.num_waiting() < 20) {
      scheduler.add({make_request(next_id, 8, 1)});
      ++next_id;
    }
    const StepPlan plan = scheduler.plan_step();
    ++num_steps;
    auto sampled = metro::test::sample(plan);
    for (const FinishedSequence& finished : scheduler.apply(std::move(sampled))) {
      is_finished = is_finished || finished.request.id == 0;
    }
    // Between two decode steps at most twice the 8 places' prompts of 8 rows are computed, at least 4 rows a step.
    REQUIRE(num_steps <= 50 * (2 * 8 * 8 / 4 + 1));
  }
  CHECK(next_id > 100);
}

TEST_CASE("a waiting prompt is computed though decoding sequences never become few on their own") {
  SchedulerLimits limits;
  limits.max_sequences_per_rank = 4;
  limits.prefill_chunk = 8;
  limits.prefill_min = 1.0;
  limits.kv_blocks_per_rank = 64;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 1, 20), make_request(1, 1, 20), make_request(2, 1, 20)});
  std::int64_t num_steps_before = 0;
  scheduler.apply(metro::test::sample(scheduler.plan_step()));
  scheduler.add({make_request(3, 2, 5)});

  while (scheduler.plan_step().kind == StepKind::decode) {
    ++num_steps_before;
    std::vector<metro::SampledToken> tokens(3, metro::SampledToken{1, 0.0F, {}});
    scheduler.apply({tokens});
    REQUIRE(num_steps_before <= 19);
  }

  CHECK(num_steps_before == 19);
}

TEST_CASE("a thousand ranks with 32 sequences each are planned step by step") {
  SchedulerLimits limits;
  limits.num_ranks = 1024;
  limits.max_sequences_per_rank = 32;
  limits.prefill_chunk = 256;
  limits.kv_blocks_per_rank = 1'000'000'000;
  Scheduler scheduler(limits);
  std::vector<Request> requests;
  for (std::int64_t id = 0; id < 40'000; ++id) {
    requests.push_back(make_request(id, 8, 3));
  }
  scheduler.add(requests);

  std::size_t num_finished = 0;
  std::int64_t most_running = 0;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    most_running = std::max(most_running, scheduler.num_running());
    num_finished += scheduler.apply(metro::test::sample(plan)).size();
  }

  CHECK(num_finished == 40'000);
  CHECK(most_running == 1024 * 32);
}
