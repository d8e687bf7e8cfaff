#include "report/latency_histogram.hpp"

#include <algorithm>
#include <cmath>

namespace metro {

void LatencyHistogram::add(double seconds) {
  seconds = std::max(seconds, 0.0);
  const double position = seconds > least_s ? std::log(seconds / least_s) / std::log(growth) : 0.0;
  ++counts_[static_cast<std::size_t>(std::min(position, static_cast<double>(num_buckets - 1)))];
  least_value_s_ = num_values_ == 0 ? seconds : std::min(least_value_s_, seconds);
  largest_value_s_ = std::max(largest_value_s_, seconds);
  ++num_values_;
}

double LatencyHistogram::quantile(double q) const {
  if (num_values_ == 0) {
    return 0.0;
  }
  const auto rank = std::max<std::int64_t>(1, std::llround(std::ceil(q * static_cast<double>(num_values_))));
  std::size_t bucket = 0;
  for (std::int64_t num_below = counts_[0]; num_below < rank && bucket + 1 < num_buckets;
       num_below += counts_[bucket]) {
    ++bucket;
  }
  // The middle of the bucket, by ratio: at most half of its 2% from any value in it.
  const double middle_s = least_s * std::pow(growth, static_cast<double>(bucket) + 0.5);
  return std::clamp(middle_s, least_value_s_, largest_value_s_);
}

}  // namespace metro
