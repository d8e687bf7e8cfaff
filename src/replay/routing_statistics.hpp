// What many routings of drawn batches amount to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// One batch routed in one layer.
struct RoutedBatch {
  std::int64_t num_active = 0;              // distinct experts with rows
  std::span<const std::int32_t> activated;  // replicas in use per rank, [num_ranks]
  std::span<const std::int64_t> rows;       // assignments that each rank serves, [num_ranks]
  std::int32_t optimum = 0;                 // the least lambda of any routing
  std::int64_t num_assignments = 0;
  std::int64_t num_differing = 0;  // assignments that ranks would serve differently if each decided as for its own rows
  std::int64_t num_lock_differing = 0;  // active experts on which two lock orders disagree; see lock_order.hpp
  double seconds = 0.0;                 // time of the routing
};

// Means are over all batches that were added; shares are between 0 and 1.
struct RoutingStatistics {
  std::int64_t num_batches = 0;
  double active = 0.0;
  double lambda = 0.0;
  std::int32_t lambda_p95 = 0;  // the smallest lambda that at least 95% of the batches do not exceed
  std::int32_t lambda_max = 0;
  double activated = 0.0;  // sum over ranks
  double optimum = 0.0;
  double bound = 0.0;               // ceil(active / ranks)
  double rows_max_over_mean = 0.0;  // sum of the largest rows / sum of the mean rows; reciprocal of vLLM's balancedness
  double differing_share = 0.0;     // of assignments
  double lock_differing_share = 0.0;  // of active experts
  double microseconds = 0.0;          // of a routing, the median

  double gap() const { return lambda / optimum - 1.0; }
  double above_bound() const { return lambda / bound - 1.0; }
};

class RoutingStatisticsSum {
 public:
  void add(const RoutedBatch& batch);
  void add(const RoutingStatisticsSum& other);

  // At least one batch must have been added.
  RoutingStatistics statistics() const;

 private:
  std::vector<std::int64_t> batches_by_lambda_;
  std::int64_t num_batches_ = 0;
  std::int64_t active_ = 0, activated_ = 0, optimum_ = 0, bound_ = 0;
  std::int64_t num_assignments_ = 0, num_differing_ = 0, num_lock_differing_ = 0;
  double rows_max_ = 0.0, rows_mean_ = 0.0;
  std::vector<double> seconds_;  // [num_batches]
};

}  // namespace metro
