// Turns what happens in the step loop into records, adds them up and has them written. Rank 0 only.
#pragma once

#include "report/activation_recorder.hpp"
#include "report/metrics_writer.hpp"
#include "report/run_records.hpp"
#include "report/run_statistics.hpp"
#include "requests/scheduler.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace metro {

class RunRecorder {
 public:
  // writer may be null: then nothing is written.
  RunRecorder(const Placement& placement, RoutingPolicy decode_policy, MetricsWriter* writer);

  // To be shown the forward passes.
  StepObserver& observer() { return activation_; }

  // Of each step, in this order: planned; the tokens of all ranks are known, but not yet applied; a completion is
  // finished.
  void step_planned(const StepPlan& plan);
  void step_done(const StepPlan& plan);
  // origin.arrival_s: seconds since start_time(), nothing if it was there at once.
  void request_done(const FinishedSequence& finished, const RequestOrigin& origin);
  // Between two steps: `placement` holds from the next one on.
  void rebalanced(const RebalanceMetrics& metrics, const Placement& placement);
  // What all ranks [num_ranks] measured in the step that was done last; at the latest before the next one is done.
  void step_measured(std::span<const RankStep> ranks);

  Clock::time_point start_time() const { return start_; }
  double seconds_so_far() const { return seconds_between(start_, Clock::now()); }
  std::int64_t num_done() const { return num_done_; }        // requests
  std::int64_t num_sampled() const { return num_sampled_; }  // tokens, also of requests that are not done
  const RunStatistics& statistics() const { return statistics_; }

 private:
  struct Times {
    double first_step_s = 0.0, first_token_s = 0.0, last_token_s = 0.0;
    std::int64_t num_earlier_tokens = 0;  // that an earlier part of the run has generated
  };

  ActivationRecorder activation_;
  MetricsWriter* writer_;
  RunStatistics statistics_;
  Clock::time_point start_ = Clock::now();
  StepMetrics step_;  // planned, or done and not yet measured
  double planned_s_ = 0.0;
  std::map<std::int64_t, Times> times_;  // of running requests by id
  std::int64_t num_done_ = 0, num_sampled_ = 0;
};

}  // namespace metro
