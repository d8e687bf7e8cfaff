// A rank that keeps the tokens of its own sequences only decides as one that keeps all.
#include "base/error.hpp"
#include "requests/scheduler_harness.hpp"

#include <catch2/catch.hpp>

using metro::Scheduler;
using metro::SchedulerLimits;
using metro::test::describe;
using metro::test::make_request;
using metro::test::roomy;
using metro::test::sample;

namespace {

SchedulerLimits limits_of(std::int64_t keeps_tokens_of) {
  SchedulerLimits limits = roomy(3);
  limits.keeps_tokens_of = keeps_tokens_of;
  return limits;
}

// One that was begun before, and more than there are places.
std::vector<metro::Request> some_requests() {
  std::vector<metro::Request> requests;
  for (std::int64_t id = 0; id < 20; ++id) {
    requests.push_back(make_request(id, 1 + id % 7, 2 + static_cast<std::int32_t>(id % 5)));
  }
  requests[4].generated.resize(3);
  requests[4].max_tokens = 9;
  return requests;
}

}  // namespace

TEST_CASE("which tokens a rank keeps changes no plan, no digest and no end") {
  Scheduler all(limits_of(SchedulerLimits::all_ranks));
  Scheduler own(limits_of(1));
  all.add(some_requests());
  own.add(some_requests());

  std::int64_t num_steps = 0;
  for (; !all.idle(); ++num_steps) {
    const metro::StepPlan plan_of_all = all.plan_step();
    const metro::StepPlan plan_of_own = own.plan_step();
    REQUIRE(describe(plan_of_own) == describe(plan_of_all));
    REQUIRE(own.digest() == all.digest());
    const auto finished_of_all = all.apply(sample(plan_of_all));
    const auto finished_of_own = own.apply(sample(plan_of_own));
    REQUIRE(finished_of_own.size() == finished_of_all.size());
    for (std::size_t i = 0; i < finished_of_all.size(); ++i) {
      CHECK(finished_of_own[i].request.id == finished_of_all[i].request.id);
      CHECK(finished_of_own[i].reason == finished_of_all[i].reason);
      CHECK((finished_of_own[i].tokens.empty() || finished_of_own[i].tokens == finished_of_all[i].tokens));
    }
  }

  CHECK(num_steps > 5);
  CHECK(own.idle());
  CHECK(own.digest() == all.digest());
}

TEST_CASE("a rank keeps all tokens of its own sequences and none of the others") {
  Scheduler scheduler(limits_of(1));
  scheduler.add(some_requests());
  for (int step = 0; step < 2; ++step) {
    scheduler.apply(sample(scheduler.plan_step()));
  }

  const metro::StepPlan plan = scheduler.plan_step();

  for (std::size_t rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    REQUIRE(!plan.rows_of_rank[rank].empty());
    for (const metro::SequenceRows& rows : plan.rows_of_rank[rank]) {
      CHECK(rows.sequence->tokens.empty() == (rank != 1));
      CHECK((rank != 1 || std::ssize(rows.sequence->tokens) >= rows.first_position + rows.num_rows));
    }
  }
  CHECK_THROWS_AS(scheduler.unfinished(), metro::Bug);
}

TEST_CASE("a scheduler that keeps the tokens of one rank holds less for a long completion of another") {
  const auto bytes_after = [](std::int64_t keeps_tokens_of, int num_tokens) {
    SchedulerLimits limits = limits_of(keeps_tokens_of);
    limits.kv_blocks_per_rank = 1000;
    Scheduler scheduler(limits);
    scheduler.add({make_request(0, 4, 2000)});  // it goes to rank 0
    for (int i = 0; i < num_tokens; ++i) {
      scheduler.apply(sample(scheduler.plan_step()));
    }
    return scheduler.num_bytes();
  };

  CHECK(bytes_after(1, 1000) == bytes_after(1, 1));
  CHECK(bytes_after(0, 1000) - bytes_after(0, 1) >= 999 * static_cast<std::int64_t>(sizeof(metro::SampledToken)));
}
