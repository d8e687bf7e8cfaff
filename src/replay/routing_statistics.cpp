#include "replay/routing_statistics.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "routing/policy.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

void RoutingStatisticsSum::add(const RoutedBatch& batch) {
  const auto num_ranks = std::ssize(batch.activated);
  const auto lambda = static_cast<std::size_t>(*std::max_element(batch.activated.begin(), batch.activated.end()));
  batches_by_lambda_.resize(std::max(batches_by_lambda_.size(), lambda + 1), 0);
  ++batches_by_lambda_[lambda];
  ++num_batches_;
  active_ += batch.num_active;
  activated_ += std::accumulate(batch.activated.begin(), batch.activated.end(), std::int64_t{0});
  optimum_ += batch.optimum;
  bound_ += lambda_lower_bound(batch.num_active, num_ranks);
  num_assignments_ += batch.num_assignments;
  num_differing_ += batch.num_differing;
  num_lock_differing_ += batch.num_lock_differing;
  rows_max_ += static_cast<double>(*std::max_element(batch.rows.begin(), batch.rows.end()));
  rows_mean_ += static_cast<double>(std::accumulate(batch.rows.begin(), batch.rows.end(), std::int64_t{0})) /
                static_cast<double>(num_ranks);
  seconds_.push_back(batch.seconds);
}

void RoutingStatisticsSum::add(const RoutingStatisticsSum& other) {
  batches_by_lambda_.resize(std::max(batches_by_lambda_.size(), other.batches_by_lambda_.size()), 0);
  for (std::size_t lambda = 0; lambda < other.batches_by_lambda_.size(); ++lambda) {
    batches_by_lambda_[lambda] += other.batches_by_lambda_[lambda];
  }
  num_batches_ += other.num_batches_;
  active_ += other.active_;
  activated_ += other.activated_;
  optimum_ += other.optimum_;
  bound_ += other.bound_;
  num_assignments_ += other.num_assignments_;
  num_differing_ += other.num_differing_;
  num_lock_differing_ += other.num_lock_differing_;
  rows_max_ += other.rows_max_;
  rows_mean_ += other.rows_mean_;
  seconds_.insert(seconds_.end(), other.seconds_.begin(), other.seconds_.end());
}

RoutingStatistics RoutingStatisticsSum::statistics() const {
  METRO_REQUIRE(num_batches_ > 0, "no batches");
  const auto mean = [&](std::int64_t sum) { return static_cast<double>(sum) / static_cast<double>(num_batches_); };
  const auto share = [](std::int64_t part, std::int64_t all) {
    return static_cast<double>(part) / static_cast<double>(all);
  };
  RoutingStatistics result;
  result.num_batches = num_batches_;
  result.active = mean(active_);
  std::int64_t lambda_sum = 0;
  std::int64_t num_not_above = 0;
  for (std::size_t lambda = 0; lambda < batches_by_lambda_.size(); ++lambda) {
    lambda_sum += static_cast<std::int64_t>(lambda) * batches_by_lambda_[lambda];
    if (100 * num_not_above < 95 * num_batches_) {
      result.lambda_p95 = static_cast<std::int32_t>(lambda);
    }
    num_not_above += batches_by_lambda_[lambda];
  }
  result.lambda = mean(lambda_sum);
  result.lambda_max = static_cast<std::int32_t>(batches_by_lambda_.size()) - 1;
  result.activated = mean(activated_);
  result.optimum = mean(optimum_);
  result.bound = mean(bound_);
  result.rows_max_over_mean = rows_max_ / rows_mean_;
  result.differing_share = share(num_differing_, num_assignments_);
  result.lock_differing_share = share(num_lock_differing_, active_);
  // Not the mean: a process that was put aside once would spoil it.
  std::vector<double> seconds = seconds_;
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  result.microseconds = 1e6 * *middle;
  return result;
}

}  // namespace metro
