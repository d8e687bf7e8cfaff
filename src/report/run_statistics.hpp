// The records of a run, added up: what the summary says.
#pragma once

#include "report/latency_histogram.hpp"
#include "report/run_records.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Activated experts over all decode steps and MoE layers; a sample is one layer of one step.
struct ActivationStatistics {
  std::int64_t num_samples = 0;
  std::int64_t num_optimal = 0;  // samples with lambda = optimum
  std::int64_t lambda_sum = 0, optimum_sum = 0, activated_sum = 0, active_sum = 0;
  std::vector<std::int64_t> lambda_to_count;  // samples with this lambda

  void add(const LayerActivation& layer);
  double mean(std::int64_t sum) const;  // per sample, 0 without samples
};

class RunStatistics {
 public:
  void add(const StepMetrics& step);
  void add(const RequestMetrics& request);
  void add(const RebalanceMetrics& rebalance);

  std::int64_t prefill_steps = 0, decode_steps = 0;
  double prefill_s = 0.0, decode_s = 0.0;
  double end_s = 0.0;                                            // when the last step ended
  std::array<double, num_phases> phase_max_s{}, phase_mean_s{};  // sums over steps
  std::array<double, num_phases> decode_phase_mean_s{};          // the same of decode steps alone
  std::int64_t bytes_sent = 0;
  ActivationStatistics activation;

  std::int64_t num_rebalances = 0, slots_moved = 0, experts_fetched = 0;
  std::int64_t rebalance_bytes_sent = 0, rebalance_bytes_read = 0;
  double rebalance_s = 0.0;
  double balance_before_sum = 0.0, balance_after_sum = 0.0;  // over changes of placement

  std::int64_t num_stop = 0, num_length = 0;             // completions by finish reason
  std::int64_t prompt_tokens = 0, generated_tokens = 0;  // of finished requests
  LatencyHistogram queue_s;        // per request with an arrival time: from then to its first prefill step
  LatencyHistogram first_token_s;  // per request: to its first token, from its arrival or else its first prefill step
  LatencyHistogram per_token_s;    // per request with two tokens or more: mean time between tokens
};

// A range of values of a histogram with its number of samples.
struct HistogramBar {
  std::int64_t first = 0, last = 0;  // both included
  std::int64_t count = 0;
};
// value_to_count as at most max_bars bars of equal width, from the least to the largest value that occurs.
std::vector<HistogramBar> histogram_bars(std::span<const std::int64_t> value_to_count, std::int64_t max_bars);

}  // namespace metro
