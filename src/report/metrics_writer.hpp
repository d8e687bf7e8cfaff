// Writes metrics.h5 (docs/formats.md). Rank 0 only. Records are collected in memory and written in chunks, so that the
// step loop is held up rarely and a file of any length takes the same memory.
#pragma once

#include "report/run_records.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace metro {

inline constexpr const char* metrics_format_name = "metro-metrics";
inline constexpr std::int64_t metrics_format_version = 1;

class MetricsWriter {
 public:
  // Steps, or requests, between two writes.
  static constexpr std::int64_t default_chunk_rows = 1024;

  // Creates the file, or empties it, and writes what is known before the first step. Throws Error(usage) when it cannot
  // be created; all methods throw Error(machine) when writing fails (disk full).
  MetricsWriter(const std::string& path, const RunIdentity& identity, std::int64_t chunk_rows = default_chunk_rows);
  ~MetricsWriter();

  // Steps in order; step.layers must have one entry per MoE layer in decode steps.
  void add(const StepMetrics& step);
  void add(const RequestMetrics& request);
  // Written at once: the file tells the placement of every step that it holds.
  void add(const RebalanceMetrics& rebalance);
  // Writes what is left and closes the file.
  void finish(const RunTotals& totals);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
