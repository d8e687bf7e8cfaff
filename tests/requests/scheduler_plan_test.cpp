// Small plans worked out by hand, and what the scheduler refuses.
#include "requests/scheduler.hpp"

#include "base/error.hpp"
#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

using metro::Bug;
using metro::Request;
using metro::SampledToken;
using metro::Scheduler;
using metro::SchedulerLimits;
using metro::StepPlan;
using metro::test::describe;
using metro::test::make_request;
using metro::test::roomy;

namespace {

// Plans, applies the same token everywhere, and tells the plan.
std::string step(Scheduler& scheduler, std::int32_t token = 1) {
  const StepPlan plan = scheduler.plan_step();
  const std::string text = describe(plan);
  auto sampled = metro::test::sample(plan);
  for (auto& of_rank : sampled) {
    for (SampledToken& one : of_rank) {
      one.token = token;
    }
  }
  scheduler.apply(std::move(sampled));
  return text;
}

std::vector<std::string> all_steps(Scheduler& scheduler) {
  std::vector<std::string> steps;
  while (!scheduler.idle()) {
    steps.push_back(step(scheduler));
  }
  return steps;
}

using Steps = std::vector<std::string>;

}  // namespace

TEST_CASE("a prompt is computed in chunks, its last row gives the first token, then one row per token") {
  SchedulerLimits limits = roomy(1);
  limits.prefill_chunk = 2;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 5, 3)});

  CHECK(all_steps(scheduler) == Steps{"P [0:0+2]", "P [0:2+2]", "P [0:4+1!]", "D [0:5+1!]", "D [0:6+1!]"});
}

TEST_CASE("a new sequence goes to the rank with the fewest, the lowest of equals") {
  Scheduler scheduler(roomy(3));
  scheduler.add({make_request(0, 1, 9), make_request(1, 1, 9), make_request(2, 1, 9), make_request(3, 1, 9)});

  CHECK(describe(scheduler.plan_step()) == "P [0:0+1! 3:0+1!] [1:0+1!] [2:0+1!]");
  CHECK(scheduler.num_running() == 4);
  CHECK(scheduler.num_waiting() == 0);
}

TEST_CASE("a prefill step takes rows in the order of admission and splits the prompt at the chunk") {
  Scheduler scheduler(roomy(1));
  scheduler.add({make_request(0, 5, 2), make_request(1, 6, 2), make_request(2, 1, 2)});

  CHECK(all_steps(scheduler) == Steps{"P [0:0+5! 1:0+3]", "P [1:3+3! 2:0+1!]", "D [0:5+1! 1:6+1! 2:1+1!]"});
}

TEST_CASE("few waiting rows wait while half the places decode, enough rows do not") {
  Scheduler scheduler(roomy(1));  // half the places: 2 sequences; threshold: 4 rows
  scheduler.add({make_request(0, 1, 9), make_request(1, 1, 9)});
  REQUIRE(step(scheduler) == "P [0:0+1! 1:0+1!]");

  scheduler.add({make_request(2, 3, 9)});
  CHECK(step(scheduler) == "D [0:1+1! 1:1+1!]");
  scheduler.add({make_request(3, 1, 9)});
  CHECK(step(scheduler) == "P [2:0+3! 3:0+1!]");
  CHECK(step(scheduler) == "D [0:2+1! 1:2+1! 2:3+1! 3:1+1!]");
}

TEST_CASE("when fewer than half the places decode, any waiting row is computed") {
  Scheduler scheduler(roomy(1));
  scheduler.add({make_request(0, 1, 9)});
  REQUIRE(step(scheduler) == "P [0:0+1!]");

  scheduler.add({make_request(1, 1, 9)});

  CHECK(step(scheduler) == "P [1:0+1!]");
  CHECK(step(scheduler) == "D [0:1+1! 1:1+1!]");
}

TEST_CASE("a decode step comes once more prompts were admitted than there are places") {
  SchedulerLimits limits = roomy(1);
  limits.max_sequences_per_rank = 2;
  limits.prefill_min = 0.0;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 1, 3), make_request(1, 8, 1), make_request(2, 8, 1), make_request(3, 8, 1),
                 make_request(4, 8, 1), make_request(5, 8, 1)});

  // Request 0 and one other share two places; whenever a third is admitted since the last decode step, 0 has its turn.
  CHECK(all_steps(scheduler) == Steps{"P [0:0+1! 1:0+7]", "P [1:7+1!]", "D [0:1+1!]", "P [2:0+8!]", "P [3:0+8!]",
                                      "P [4:0+8!]", "D [0:2+1!]", "P [5:0+8!]"});
}

TEST_CASE("a sequence goes to the next rank if the first lacks KV blocks") {
  SchedulerLimits limits = roomy(2);
  limits.kv_blocks_per_rank = 4;
  Scheduler scheduler(limits);
  // 4, 1, 1 and 2 blocks of 4 tokens; the third sees loads 1 and 1, but rank 0 is full.
  scheduler.add({make_request(0, 12, 4), make_request(1, 1, 3), make_request(2, 1, 3), make_request(3, 4, 3)});

  CHECK(describe(scheduler.plan_step()) == "P [0:0+8] [1:0+1! 2:0+1! 3:0+4!]");
}

TEST_CASE("the head of the queue waits for KV blocks and nothing overtakes it") {
  SchedulerLimits limits = roomy(1);
  limits.kv_blocks_per_rank = 4;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 1, 3), make_request(1, 12, 4), make_request(2, 1, 2)});

  CHECK(step(scheduler) == "P [0:0+1!]");
  CHECK(scheduler.num_waiting() == 2);
  CHECK(step(scheduler) == "D [0:1+1!]");
  CHECK(step(scheduler) == "D [0:2+1!]");
  CHECK(step(scheduler) == "P [1:0+8]");
  CHECK(scheduler.num_waiting() == 1);
}

TEST_CASE("a place of a sequence is free in the step after it ends") {
  SchedulerLimits limits = roomy(1);
  limits.max_sequences_per_rank = 1;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 2, 1), make_request(1, 2, 2)});

  CHECK(all_steps(scheduler) == Steps{"P [0:0+2!]", "P [1:0+2!]", "D [1:2+1!]"});
}

TEST_CASE("freed KV blocks are used again, the lowest first") {
  SchedulerLimits limits = roomy(1);
  limits.share_prefixes = false;
  Scheduler scheduler(limits);
  scheduler.add({make_request(0, 4, 1), make_request(1, 2, 9)});
  StepPlan plan = scheduler.plan_step();
  CHECK(plan.rows_of_rank[0][0].sequence->kv.blocks == std::vector<std::int32_t>{0, 1});
  CHECK(plan.rows_of_rank[0][1].sequence->kv.blocks == std::vector<std::int32_t>{2, 3, 4});
  scheduler.apply(metro::test::sample(plan));

  scheduler.add({make_request(2, 8, 4)});
  plan = scheduler.plan_step();

  REQUIRE(plan.rows_of_rank[0].size() == 1);
  CHECK(plan.rows_of_rank[0][0].sequence->kv.blocks == std::vector<std::int32_t>{0, 1, 5});
}

TEST_CASE("scored rows are those with a token of the prompt behind them") {
  SchedulerLimits limits = roomy(1);
  limits.prefill_chunk = 3;
  Scheduler scheduler(limits);
  Request scored = make_request(0, 4, 2);
  scored.scores_prompt = true;
  scheduler.add({scored, make_request(1, 2, 1)});
  std::vector<std::int64_t> num_scored;

  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    for (const auto& rows : plan.rows_of_rank[0]) {
      num_scored.push_back(rows.num_scored());
    }
    scheduler.apply(metro::test::sample(plan));
  }

  // Request 0: rows 0..2; then row 3, which gives the first token, beside the prompt of request 1; then a decode step.
  CHECK(num_scored == std::vector<std::int64_t>{3, 0, 0, 0});
}

TEST_CASE("the rows of a plan are counted per rank and in total") {
  Scheduler scheduler(roomy(2));
  scheduler.add({make_request(0, 5, 1), make_request(1, 2, 1), make_request(2, 1, 1)});

  const StepPlan plan = scheduler.plan_step();

  CHECK(plan.num_rows(0) == 6);
  CHECK(plan.num_rows(1) == 2);
  CHECK(plan.total_rows() == 8);
  CHECK_THROWS_AS(plan.num_rows(2), Bug);
}

TEST_CASE("planning and applying out of turn are bugs") {
  Scheduler scheduler(roomy(1));

  CHECK_THROWS_AS(scheduler.plan_step(), Bug);
  CHECK_THROWS_AS(scheduler.apply({{}}), Bug);
  scheduler.add({make_request(0, 2, 3)});
  CHECK_THROWS_AS(scheduler.apply({{}}), Bug);
  const StepPlan plan = scheduler.plan_step();
  CHECK_THROWS_AS(scheduler.plan_step(), Bug);

  CHECK_THROWS_AS(scheduler.apply({}), Bug);
  CHECK_THROWS_AS(scheduler.apply({{}}), Bug);
  CHECK_THROWS_AS(scheduler.apply({{SampledToken{}, SampledToken{}}}), Bug);
  CHECK_THROWS_AS(scheduler.apply({{SampledToken{-1, 0.0F, {}}}}), Bug);

  // None of the refused calls changed anything.
  CHECK_NOTHROW(scheduler.apply(metro::test::sample(plan)));
  CHECK(describe(scheduler.plan_step()) == "D [0:2+1!]");
}

TEST_CASE("requests and limits that cannot work are bugs") {
  Scheduler scheduler(roomy(1));

  CHECK_THROWS_AS(scheduler.add({make_request(0, 0, 1)}), Bug);
  CHECK_THROWS_AS(scheduler.add({make_request(0, 1, 0)}), Bug);
  CHECK_THROWS_AS(scheduler.add({make_request(0, 390, 11)}), Bug);
  CHECK_NOTHROW(scheduler.add({make_request(0, 390, 10)}));
  SchedulerLimits limits = roomy(1);
  limits.prefill_min = 1.5;
  CHECK_THROWS_AS(Scheduler(limits), Bug);
  limits = roomy(0);
  CHECK_THROWS_AS(Scheduler(limits), Bug);
  limits = roomy(1);
  limits.prefill_chunk = 0;
  CHECK_THROWS_AS(Scheduler(limits), Bug);
}
