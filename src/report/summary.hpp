// The summary of a run: at its end, and later from metrics.h5.
#pragma once

#include "report/run_records.hpp"
#include "report/run_statistics.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

namespace metro {

// What earlier parts of a run that was stopped or killed have done.
struct EarlierParts {
  std::int64_t part = 1;  // how often the run was started
  std::int64_t num_completed = 0, num_rejected = 0;
  std::int64_t num_continued = 0;  // lines that went on from tokens
};

struct Summary {
  const RunStatistics* statistics = nullptr;
  RunTotals totals;
  bool has_ended = true;  // else totals are not known
  std::int64_t num_ranks = 1;
  std::string output_directory;
  EarlierParts earlier = {};
  bool is_finished = true;  // else a signal has stopped it
  std::string shard = "0/1";
};
void print_summary(const Summary& summary, std::FILE* out);

// Prints what kind of run wrote the metrics.h5 at `path`, and its summary. Throws what MetricsReader throws.
void inspect_metrics(const std::string& path, std::FILE* out);

}  // namespace metro
