// The summary of a run: at its end, and later from metrics.h5.
#pragma once

#include "report/run_records.hpp"
#include "report/run_statistics.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace metro {

struct Summary {
  const RunStatistics* statistics = nullptr;
  RunTotals totals;
  bool has_ended = true;  // else totals are not known
  std::int64_t num_ranks = 1;
  std::string output_directory;
};
void print_summary(const Summary& summary, std::FILE* out);

// Prints what kind of run wrote the metrics.h5 at `path`, and its summary. Throws what MetricsReader throws.
void inspect_metrics(const std::string& path, std::FILE* out);

}  // namespace metro
