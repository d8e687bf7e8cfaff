#include "report/run_statistics.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstddef>

namespace metro {

void ActivationStatistics::add(const LayerActivation& layer) {
  ++num_samples;
  num_optimal += layer.lambda == layer.optimum ? 1 : 0;
  lambda_sum += layer.lambda;
  optimum_sum += layer.optimum;
  activated_sum += layer.activated;
  active_sum += layer.active;
  const auto lambda = static_cast<std::size_t>(layer.lambda);
  if (lambda_to_count.size() <= lambda) {
    lambda_to_count.resize(lambda + 1, 0);
  }
  ++lambda_to_count[lambda];
}

double ActivationStatistics::mean(std::int64_t sum) const {
  return num_samples == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(num_samples);
}

void RunStatistics::add(const StepMetrics& step) {
  const bool prefill = step.kind == StepKind::prefill;
  (prefill ? prefill_steps : decode_steps) += 1;
  (prefill ? prefill_s : decode_s) += static_cast<double>(step.seconds);
  end_s = step.begin_s + static_cast<double>(step.seconds);
  for (std::size_t phase = 0; phase < num_phases; ++phase) {
    phase_max_s[phase] += static_cast<double>(step.phases.max[phase]);
    phase_mean_s[phase] += static_cast<double>(step.phases.mean[phase]);
    decode_phase_mean_s[phase] += prefill ? 0.0 : static_cast<double>(step.phases.mean[phase]);
  }
  bytes_sent += step.bytes_sent;
  for (const LayerActivation& layer : step.layers) {
    activation.add(layer);
  }
}

void RunStatistics::add(const RequestMetrics& request) {
  (request.finish_reason == FinishReason::length ? num_length : num_stop) += 1;
  prompt_tokens += request.prompt_tokens;
  generated_tokens += request.generated_tokens;
  if (request.arrival_s) {
    queue_s.add(request.first_step_s - *request.arrival_s);
  }
  first_token_s.add(request.first_token_s - request.arrival_s.value_or(request.first_step_s));
  if (request.generated_tokens > 1) {
    per_token_s.add((request.last_token_s - request.first_token_s) / (request.generated_tokens - 1));
  }
}

void RunStatistics::add(const RebalanceMetrics& rebalance) {
  ++num_rebalances;
  slots_moved += rebalance.slots_moved;
  experts_fetched += rebalance.experts_fetched;
  rebalance_bytes_sent += rebalance.bytes_sent;
  rebalance_bytes_read += rebalance.bytes_read;
  rebalance_s += rebalance.seconds;
  balance_before_sum += rebalance.balance_before;
  balance_after_sum += rebalance.balance_after;
}

std::vector<HistogramBar> histogram_bars(std::span<const std::int64_t> value_to_count, std::int64_t max_bars) {
  METRO_REQUIRE(max_bars > 0, std::to_string(max_bars));
  const auto occurs = [](std::int64_t count) { return count > 0; };
  const auto least = std::find_if(value_to_count.begin(), value_to_count.end(), occurs);
  const std::int64_t first = least - value_to_count.begin();
  std::int64_t end = std::ssize(value_to_count);
  while (end > first && value_to_count[static_cast<std::size_t>(end - 1)] == 0) {
    --end;
  }
  std::vector<HistogramBar> bars;
  const std::int64_t width = (end - first + max_bars - 1) / max_bars;
  for (std::int64_t value = first; value < end; value += width) {
    HistogramBar bar{value, std::min(value + width, end) - 1, 0};
    for (std::int64_t member = bar.first; member <= bar.last; ++member) {
      bar.count += value_to_count[static_cast<std::size_t>(member)];
    }
    bars.push_back(bar);
  }
  return bars;
}

}  // namespace metro
