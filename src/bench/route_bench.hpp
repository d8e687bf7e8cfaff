// `metro bench route`: how long every routing policy takes per layer, beside the greedy one, and what it reaches.
// Kokkos must be running, for the kernel. Policies are timed in turn within every repetition, so that what else the
// machine does hits all of them alike.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct RouteBenchOptions {
  struct Shape {
    std::int64_t num_experts, num_ranks;
  };
  std::vector<Shape> shapes{{128, 8}, {256, 16}, {256, 64}, {512, 144}};
  std::vector<double> replications{1.125, 1.25, 1.5};
  std::vector<std::int64_t> batch_sizes{16, 64, 256, 1024};  // tokens of all ranks
  std::int64_t top_k = 8;
  double skew = 0.7;
  std::int64_t ranks_per_node = 8;  // of `static`, `local` and exact-on-nodes
  std::int64_t num_batches = 32;    // different ones in a repetition
  std::int64_t repetitions = 9;
  std::string counts_path;  // instead of synthetic batches; then the experts come from the file
  std::string json_path;    // empty: no file
};

// "128/8" -> 128 experts on 8 ranks. Throws Error(usage) naming `text` and what is allowed.
RouteBenchOptions::Shape parse_shape(const std::string& text);

// What one policy did in one setting. Times in microseconds per layer, over the repetitions.
struct RouteTiming {
  std::string policy;
  // From rows per expert to ranks; 0 for policies that look at every assignment.
  double counts_us_min = 0.0, counts_us_median = 0.0;
  // From expert ids to slots of all assignments.
  double step_us_min = 0.0, step_us_median = 0.0;
  double lambda = 0.0;  // mean over the batches
};

struct RouteSetting {
  std::int64_t num_experts = 0, num_ranks = 0, slots_per_rank = 0;
  double replication = 1.0;
  double num_assignments = 0.0;  // of a batch, mean
  std::vector<RouteTiming> timings;
};

// Runs one setting: batches [num_batches] of expert ids, top_k per row, on an EPLB placement planned with loads.
RouteSetting bench_routing(const RouteBenchOptions& options, const RouteBenchOptions::Shape& shape, double replication,
                           const std::vector<std::vector<std::int32_t>>& batches, std::int64_t top_k,
                           const std::vector<std::int64_t>& loads);

// Runs all settings, prints a table and writes options.json_path. Throws Error(usage) for options out of range,
// Error(input) for the counts file.
void bench_route(const RouteBenchOptions& options, std::FILE* out);

}  // namespace metro
