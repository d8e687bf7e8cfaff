// `metro bench gpu`: what a decode step reads and launches on GPUs that are not here, which of the two takes longer,
// and whether the model fits, by the model of gpu_model.hpp. Nothing is measured.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct GpuBenchOptions {
  std::vector<std::string> models;                                // empty: all that are published
  std::vector<std::string> gpus{"a100", "h100", "h200", "b200"};  // of published_machine()
  std::vector<std::int64_t> ranks{1, 8};                          // ascending
  std::vector<std::int64_t> batch_sizes{1, 8, 32};                // rows of each rank
  std::string policy = "exact";
  double replication = 1.0;
  double skew = 0.7;  // of SyntheticBatches
  std::int64_t context = 2048;
  std::string weights = "bf16";                          // or int8
  double launch_us = 2.5, gap_us = 1.0, graph_us = 8.0;  // of LaunchCosts
  std::string json_path;                                 // empty: no file
};

// Prints tables and writes options.json_path. Throws Error(usage) for options out of range.
void bench_gpu(const GpuBenchOptions& options, std::FILE* out);

}  // namespace metro
