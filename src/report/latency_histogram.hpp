// Quantiles of any number of durations in memory of fixed size: counts in buckets whose borders grow by 2%.
#pragma once

#include <array>
#include <cstdint>

namespace metro {

class LatencyHistogram {
 public:
  // Negative values count as 0.
  void add(double seconds);

  std::int64_t num_values() const { return num_values_; }

  // The q-th quantile (0..1) by the nearest rank, at most 1% off for values from 1 microsecond to 10^6 seconds; never
  // outside the values that were added. 0 if there are none.
  double quantile(double q) const;

 private:
  static constexpr double least_s = 1e-6;
  static constexpr double growth = 1.02;
  static constexpr std::size_t num_buckets = 1396;  // log(10^12) / log(growth), rounded up

  // Bucket i counts values from least_s * growth^i on; the first also those below, the last those above.
  std::array<std::int64_t, num_buckets> counts_{};
  std::int64_t num_values_ = 0;
  double least_value_s_ = 0.0, largest_value_s_ = 0.0;
};

}  // namespace metro
