// Reads metrics.h5 back into the records it was written from.
#pragma once

#include "report/run_records.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace metro {

// Everything throws Error(input) naming the file and what is missing, of the wrong shape or out of range.
class MetricsReader {
 public:
  explicit MetricsReader(const std::string& path);
  ~MetricsReader();

  const RunIdentity& identity() const;
  // Nothing if the run has not ended, or ended without a summary.
  std::optional<RunTotals> totals() const;

  // In the order in which they were written; a chunk at a time is in memory.
  void for_each_step(const std::function<void(const StepMetrics&)>& take) const;
  void for_each_request(const std::function<void(const RequestMetrics&)>& take) const;
  void for_each_rebalance(const std::function<void(const RebalanceMetrics&)>& take) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
