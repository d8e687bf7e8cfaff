// `metro bench replicated`: what every rank does for all ranks of a job, and therefore grows with their number: the
// scheduler, the step record, routing, placements, and the memory of all that. One process stands for one rank in the
// middle of a job whose other ranks are pretended; no time is spent on a network.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct ReplicatedBenchOptions {
  std::string model = "qwen3-30b-a3b";              // experts, top-k and the widths of planned memory
  std::vector<std::int64_t> ranks{64, 256, 1024};   // ascending
  std::vector<std::int64_t> batch_sizes{1, 8, 32};  // sequences of each rank
  double replication = 1.0;                         // at least; a rank has at least one slot
  std::vector<std::string> policies{"exact"};
  std::int64_t ranks_per_node = 8;
  std::int64_t repetitions = 9;
  std::string json_path;  // empty: no file
};

// One thing that a rank does, in microseconds over the repetitions, and one thing that it holds.
struct ReplicatedTime {
  std::string name;
  double us_min = 0.0, us_median = 0.0;
};
struct ReplicatedBytes {
  std::string name;
  std::int64_t num_bytes = 0;
};

struct ReplicatedCost {
  std::int64_t num_ranks = 0;
  std::vector<ReplicatedTime> times;
  std::vector<ReplicatedBytes> memory;
};

// What does not depend on the batch, but for buffers that are planned; once at the start of a job.
ReplicatedCost cost_of_start(const ReplicatedBenchOptions& options, std::int64_t num_ranks);
// Of every step.
ReplicatedCost cost_of_steps(const ReplicatedBenchOptions& options, std::int64_t num_ranks, std::int64_t batch,
                             const std::string& policy);

// From one number of ranks to the next: the exponent x with which a cost grows like ranks^x. 1: linear. 0 if either is
// nothing.
double growth_exponent(double cost, std::int64_t num_ranks, double next_cost, std::int64_t next_num_ranks);

// Prints tables and writes options.json_path. Kokkos must be running. Throws Error(usage) for options out of range.
void bench_replicated(const ReplicatedBenchOptions& options, std::FILE* out);

}  // namespace metro
