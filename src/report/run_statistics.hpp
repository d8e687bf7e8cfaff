// What a run measured, collected on rank 0 while it goes: steps, tokens, latencies, activated experts.
#pragma once

#include "decoder/step_observer.hpp"
#include "placement/placement.hpp"
#include "requests/scheduler.hpp"
#include "routing/policy.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace metro {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end);

// Activated experts of decode steps, summed over steps and MoE layers.
class ActivationStatistics : public StepObserver {
 public:
  // Keeps its own replica maps, to compute the optimum beside whatever policy is in use.
  explicit ActivationStatistics(const Placement& placement);

  void routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
              std::span<const std::int32_t> activated) override;

  std::int64_t num_samples() const { return num_samples_; }   // (step, layer) pairs
  double mean_lambda() const { return mean(lambda_sum_); }    // experts on the busiest rank
  double mean_optimum() const { return mean(optimum_sum_); }  // the least that any routing could reach
  double mean_per_rank() const;                               // experts per rank, mean over ranks
  double mean_active() const { return mean(active_sum_); }    // distinct experts of a batch
  std::int64_t max_lambda() const { return max_lambda_; }

 private:
  double mean(std::int64_t sum) const;

  std::vector<ReplicaMap> maps_;
  std::vector<ExpertRouter> optimal_;
  std::vector<std::int32_t> scratch_;
  std::int64_t num_ranks_;
  std::int64_t num_samples_ = 0;
  std::int64_t lambda_sum_ = 0, optimum_sum_ = 0, activated_sum_ = 0, active_sum_ = 0, max_lambda_ = 0;
};

class RunStatistics {
 public:
  void start() { start_ = Clock::now(); }
  // A step of `plan` ran from `begin` to `end`. Call before the scheduler applies it.
  void record_step(const StepPlan& plan, Clock::time_point begin, Clock::time_point end);
  void record_finished(const FinishedSequence& finished);
  void finish() { end_ = Clock::now(); }

  double seconds() const { return seconds_between(start_, end_); }
  double seconds_so_far() const { return seconds_between(start_, Clock::now()); }

  std::int64_t num_stop = 0, num_length = 0;             // completions by finish reason
  std::int64_t prompt_tokens = 0, generated_tokens = 0;  // of finished requests
  std::int64_t prefill_steps = 0, decode_steps = 0;
  double prefill_s = 0.0, decode_s = 0.0;
  std::vector<double> first_token_s;  // per request: from its first prefill step to its first token
  std::vector<double> per_token_s;    // per request: mean time between tokens after the first

 private:
  struct Times {
    Clock::time_point first_step, first_token, last_token;
  };
  Clock::time_point start_, end_;
  std::map<std::int64_t, Times> times_;  // running requests by id
};

// q-th quantile (0..1) of values, by the nearest rank; 0 if there are none.
double quantile(std::vector<double> values, double q);

}  // namespace metro
