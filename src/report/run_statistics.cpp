#include "report/run_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace metro {

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

ActivationStatistics::ActivationStatistics(const Placement& placement)
    : scratch_(static_cast<std::size_t>(placement.num_experts)), num_ranks_(placement.num_ranks) {
  maps_.reserve(static_cast<std::size_t>(placement.num_layers));
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    maps_.emplace_back(placement.layer(layer), placement.num_experts, placement.num_ranks);
    optimal_.emplace_back(RoutingPolicy::exact, maps_.back());
  }
}

void ActivationStatistics::routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
                                  std::span<const std::int32_t> activated) {
  ExpertRouter& optimal = optimal_[static_cast<std::size_t>(moe_layer)];
  optimal.route(counts, scratch_);
  const std::int64_t lambda = *std::max_element(activated.begin(), activated.end());
  ++num_samples_;
  lambda_sum_ += lambda;
  max_lambda_ = std::max(max_lambda_, lambda);
  optimum_sum_ += optimal.lambda();
  activated_sum_ += std::accumulate(activated.begin(), activated.end(), std::int64_t{0});
  active_sum_ += std::count_if(counts.begin(), counts.end(), [](std::int32_t count) { return count > 0; });
}

double ActivationStatistics::mean(std::int64_t sum) const {
  return num_samples_ == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(num_samples_);
}

double ActivationStatistics::mean_per_rank() const {
  return mean(activated_sum_) / static_cast<double>(num_ranks_);
}

void RunStatistics::record_step(const StepPlan& plan, Clock::time_point begin, Clock::time_point end) {
  const bool prefill = plan.kind == StepKind::prefill;
  (prefill ? prefill_steps : decode_steps) += 1;
  (prefill ? prefill_s : decode_s) += seconds_between(begin, end);
  for (const auto& rows_of_rank : plan.rows_of_rank) {
    for (const SequenceRows& rows : rows_of_rank) {
      const std::int64_t id = rows.sequence->request.id;
      if (rows.first_position == 0) {
        times_[id] = {begin, {}, {}};
      }
      if (rows.samples) {
        Times& times = times_.at(id);
        if (rows.sequence->tokens.size() == rows.sequence->request.prompt.size()) {
          times.first_token = end;
        }
        times.last_token = end;
      }
    }
  }
}

void RunStatistics::record_finished(const FinishedSequence& finished) {
  (finished.reason == FinishReason::length ? num_length : num_stop) += 1;
  const auto num_tokens = static_cast<std::int64_t>(finished.tokens.size());
  prompt_tokens += static_cast<std::int64_t>(finished.request.prompt.size());
  generated_tokens += num_tokens;
  const auto found = times_.find(finished.request.id);
  const Times& times = found->second;
  first_token_s.push_back(seconds_between(times.first_step, times.first_token));
  if (num_tokens > 1) {
    per_token_s.push_back(seconds_between(times.first_token, times.last_token) / static_cast<double>(num_tokens - 1));
  }
  times_.erase(found);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0.0;
  }
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto position = values.begin() + static_cast<std::ptrdiff_t>(rank == 0 ? 0 : rank - 1);
  std::nth_element(values.begin(), position, values.end());
  return *position;
}

}  // namespace metro
