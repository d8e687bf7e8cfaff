// The recorder on a scheduler without a model: which tokens and requests it counts, and that measurements reach the
// step they belong to.
#include "report/run_recorder.hpp"

#include "report/metrics_reader.hpp"
#include "report/records.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <vector>

using metro::Lap;
using metro::StepKind;

namespace {

constexpr std::int64_t num_ranks = 2;

std::vector<metro::Request> made_up_requests() {
  std::vector<metro::Request> requests(3);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = static_cast<std::int64_t>(i);
    requests[i].prompt.assign(3 + 4 * i, 1);
    requests[i].max_tokens = static_cast<std::int32_t>(4 - i);
  }
  return requests;
}

metro::SchedulerLimits limits() {
  metro::SchedulerLimits limits;
  limits.num_ranks = num_ranks;
  limits.max_sequences_per_rank = 2;
  limits.prefill_chunk = 4;
  limits.kv_blocks_per_rank = 16;
  return limits;
}

// Every sampled token is 5, which ends nothing.
std::vector<std::vector<metro::SampledToken>> tokens_for(const metro::StepPlan& plan) {
  std::vector<std::vector<metro::SampledToken>> sampled;
  for (const auto& rows_of_rank : plan.rows_of_rank) {
    sampled.emplace_back();
    for (const metro::SequenceRows& rows : rows_of_rank) {
      if (rows.samples) {
        sampled.back().push_back({5, 0.0F, {}});
      }
    }
  }
  return sampled;
}

// What a step of this number measures: bytes and seconds tell the step and the rank.
std::vector<metro::RankStep> measured_in(std::int64_t step) {
  std::vector<metro::RankStep> ranks(num_ranks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].bytes_sent = 100 * step + static_cast<std::int64_t>(rank);
    ranks[rank].seconds[static_cast<std::size_t>(Lap::compute)] = static_cast<double>(step);
  }
  return ranks;
}

// The step loop without decoder; returns the number of steps.
std::int64_t run_all(metro::RunRecorder& recorder) {
  metro::Scheduler scheduler(limits());
  scheduler.add(made_up_requests());
  std::int64_t step = 0;
  for (; !scheduler.idle(); ++step) {
    const metro::StepPlan plan = scheduler.plan_step();
    recorder.step_planned(plan);
    if (plan.kind == StepKind::decode) {
      for (std::int64_t layer = 0; layer < 2; ++layer) {
        recorder.observer().routed(layer, std::vector<std::int32_t>{1, 0, 0, 0}, std::vector<std::int32_t>{1, 0});
      }
    }
    if (step > 0) {
      recorder.step_measured(measured_in(step - 1));
    }
    recorder.step_done(plan);
    for (const metro::FinishedSequence& finished : scheduler.apply(tokens_for(plan))) {
      metro::RequestOrigin origin;
      origin.custom_id = "id-" + std::to_string(finished.request.id);
      recorder.request_done(finished, origin);
    }
  }
  recorder.step_measured(measured_in(step - 1));
  return step;
}

}  // namespace

TEST_CASE("the records of a run hold every row, token and request once, and each step its own measurements") {
  const metro::test::ScratchFolder scratch;
  metro::MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity());
  metro::RunRecorder recorder(metro::test::identity().placement, metro::RoutingPolicy::exact, &writer);

  const std::int64_t num_steps = run_all(recorder);
  writer.finish({});

  std::int64_t step_idx = 0;
  std::map<StepKind, std::int64_t> rows;
  double last_begin_s = 0.0;
  const metro::MetricsReader reader(scratch.file("metrics.h5"));
  reader.for_each_step([&](const metro::StepMetrics& step) {
    rows[step.kind] += step.rows;
    CHECK(step.bytes_sent == 200 * step_idx + 1);
    CHECK(step.phases.max[static_cast<std::size_t>(metro::Phase::compute)] == static_cast<float>(step_idx));
    CHECK(step.begin_s >= last_begin_s);
    last_begin_s = step.begin_s;
    ++step_idx;
  });
  CHECK(step_idx == num_steps);
  CHECK(rows[StepKind::prefill] == 3 + 7 + 11);
  CHECK(rows[StepKind::decode] == 4 + 3 + 2 - 3);  // the first token of each comes with its last prompt row
  CHECK(recorder.num_sampled() == 4 + 3 + 2);
  CHECK(recorder.num_done() == 3);
  CHECK(recorder.statistics().prompt_tokens == 21);
  CHECK(recorder.statistics().generated_tokens == 9);
  CHECK(recorder.statistics().num_length == 3);
  reader.for_each_request([](const metro::RequestMetrics& request) {
    CAPTURE(request.id);
    CHECK(request.custom_id == "id-" + std::to_string(request.id));
    CHECK(request.prompt_tokens == 3 + 4 * request.id);
    CHECK(request.generated_tokens == 4 - request.id);
    CHECK(request.first_step_s < request.first_token_s);
    CHECK(request.first_token_s < request.last_token_s);
  });
}

TEST_CASE("a recorder without a file adds up all the same") {
  metro::RunRecorder recorder(metro::test::identity().placement, metro::RoutingPolicy::exact, nullptr);

  run_all(recorder);

  CHECK(recorder.statistics().generated_tokens == 9);
}

TEST_CASE("of a request that wants only its prompt no generated token is counted") {
  metro::RunRecorder recorder(metro::test::identity().placement, metro::RoutingPolicy::exact, nullptr);
  metro::Scheduler scheduler(limits());
  metro::Request request;
  request.prompt = {1, 2};
  request.max_tokens = 1;  // that is how the scheduler sees it
  scheduler.add({request});
  metro::RequestOrigin origin;
  origin.drops_completion = true;

  const metro::StepPlan plan = scheduler.plan_step();
  recorder.step_planned(plan);
  recorder.step_done(plan);
  for (const metro::FinishedSequence& finished : scheduler.apply(tokens_for(plan))) {
    recorder.request_done(finished, origin);
  }

  CHECK(recorder.num_done() == 1);
  CHECK(recorder.statistics().prompt_tokens == 2);
  CHECK(recorder.statistics().generated_tokens == 0);
}

TEST_CASE("a request that begins in blocks of another one has its first step where its own rows begin") {
  metro::RunRecorder recorder(metro::test::identity().placement, metro::RoutingPolicy::exact, nullptr);
  metro::SchedulerLimits one_rank = limits();
  one_rank.num_ranks = 1;
  one_rank.block_tokens = 2;
  metro::Scheduler scheduler(one_rank);
  std::vector<metro::Request> requests = made_up_requests();
  requests[1].prompt = requests[0].prompt;
  requests.pop_back();
  scheduler.add(requests);
  std::int64_t num_done = 0;

  while (!scheduler.idle()) {
    const metro::StepPlan plan = scheduler.plan_step();
    recorder.step_planned(plan);
    recorder.step_done(plan);
    for (const metro::FinishedSequence& finished : scheduler.apply(tokens_for(plan))) {
      recorder.request_done(finished, {});
      ++num_done;
    }
  }

  CHECK(scheduler.prompt_tokens()[0].num_shared == 2);
  CHECK(num_done == 2);
}
