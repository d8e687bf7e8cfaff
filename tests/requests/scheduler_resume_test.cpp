// Requests that come with tokens of an earlier part of the run.
#include "base/error.hpp"
#include "requests/scheduler.hpp"
#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

#include <map>

using metro::FinishedSequence;
using metro::FinishReason;
using metro::Request;
using metro::SampledToken;
using metro::Scheduler;
using metro::SchedulerLimits;
using metro::StepPlan;
using metro::test::describe;
using metro::test::make_request;
using metro::test::roomy;

namespace {

std::vector<std::int32_t> ids_of(const std::vector<SampledToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const SampledToken& token : tokens) {
    ids.push_back(token.token);
  }
  return ids;
}

struct Completion {
  std::vector<std::int32_t> tokens;
  FinishReason reason = FinishReason::none;

  bool operator==(const Completion&) const = default;
};

// Runs at most num_steps steps; adds what finishes to `done`, by request.
void run(Scheduler& scheduler, std::int64_t num_steps, std::map<std::int64_t, Completion>& done) {
  for (std::int64_t step = 0; step < num_steps && !scheduler.idle(); ++step) {
    const StepPlan plan = scheduler.plan_step();
    for (FinishedSequence& finished : scheduler.apply(metro::test::sample(plan))) {
      CHECK(done.emplace(finished.request.id, Completion{ids_of(finished.tokens), finished.reason}).second);
    }
  }
}

// What is unfinished, as requests of a later part.
std::vector<Request> rest_of(const Scheduler& scheduler) {
  std::vector<Request> rest;
  for (const auto& [request, tokens] : scheduler.unfinished()) {
    rest.push_back(*request);
    rest.back().generated = *tokens;
  }
  return rest;
}

std::vector<Request> requests() {
  std::vector<Request> all;
  for (std::int64_t id = 0; id < 20; ++id) {
    all.push_back(make_request(id, 1 + id * 7 % 19, static_cast<std::int32_t>(1 + id * 5 % 13)));
    all.back().sampling.min_tokens = id % 3 == 0 ? 2 : 0;
  }
  return all;
}

}  // namespace

TEST_CASE("a request with tokens computes them with its prompt, and then samples the next") {
  Scheduler scheduler(roomy(1));
  Request request = make_request(0, 5, 6);
  request.generated = {{7, 0.0F, {}}, {8, 0.0F, {}}, {9, 0.0F, {}}, {10, 0.0F, {}}};
  scheduler.add({request});

  std::vector<std::string> steps;
  std::vector<std::int32_t> tokens;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    steps.push_back(describe(plan));
    CHECK(plan.rows_of_rank[0][0].sequence->num_given == 9);
    auto sampled = metro::test::sample(plan);
    for (SampledToken& one : sampled[0]) {
      one.token = 30;
    }
    for (const FinishedSequence& finished : scheduler.apply(std::move(sampled))) {
      tokens = ids_of(finished.tokens);
    }
  }

  // Nine rows in chunks of eight: the first chunk samples nothing.
  CHECK(steps == std::vector<std::string>{"P [0:0+8]", "P [0:8+1!]", "D [0:9+1!]"});
  CHECK(tokens == std::vector<std::int32_t>{7, 8, 9, 10, 30, 30});
}

TEST_CASE("a run that is cut after any step and goes on elsewhere gives the completions of one that is not") {
  std::map<std::int64_t, Completion> expected;
  Scheduler whole(roomy(2));
  whole.add(requests());
  run(whole, 1'000'000, expected);
  REQUIRE(expected.size() == 20);

  for (std::int64_t cut = 0; cut < 40; ++cut) {
    std::map<std::int64_t, Completion> done;
    Scheduler first(roomy(2));
    first.add(requests());
    run(first, cut, done);
    SchedulerLimits limits = roomy(1 + cut % 3);
    limits.block_tokens = 8;
    limits.prefill_chunk = 3;
    Scheduler second(limits);
    second.add(rest_of(first));
    run(second, 3, done);
    Scheduler third(roomy(4));
    third.add(rest_of(second));
    run(third, 1'000'000, done);
    CHECK(done == expected);
  }
}

TEST_CASE("requests that wait and requests that run are unfinished, with all their tokens") {
  SchedulerLimits limits = roomy(1);
  limits.max_sequences_per_rank = 1;
  Scheduler scheduler(limits);
  Request waiting = make_request(1, 2, 5);
  waiting.generated = {{7, -0.5F, {{7, -0.5F}}}};
  scheduler.add({make_request(0, 2, 5), waiting});
  std::map<std::int64_t, Completion> done;
  run(scheduler, 2, done);

  const std::vector<Request> rest = rest_of(scheduler);

  REQUIRE(rest.size() == 2);
  CHECK(rest[0].id == 0);
  CHECK(rest[0].generated.size() == 2);
  CHECK(rest[1].id == 1);
  CHECK(rest[1].generated == waiting.generated);
}

TEST_CASE("a request that comes with all its tokens is a bug") {
  Scheduler scheduler(roomy(1));
  Request request = make_request(0, 5, 1);
  request.generated = {{7, 0.0F, {}}};

  CHECK_THROWS_AS(scheduler.add({request}), metro::Bug);
}
