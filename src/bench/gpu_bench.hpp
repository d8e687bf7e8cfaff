// `metro bench gpu`: what a decode step reads and launches on GPUs that are not here, which of the two takes longer,
// and whether the model fits, by the model of gpu_model.hpp. Nothing is measured.
#pragma once

#include "bench/paper_options.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct GpuBenchOptions : PaperOptions {
  GpuBenchOptions() { ranks = {1, 8}; }

  std::vector<std::string> gpus{"a100", "h100", "h200", "b200"};  // of published_machine()
  double launch_us = 2.5, gap_us = 1.0, graph_us = 8.0;           // of LaunchCosts
  std::string json_path;                                          // empty: no file
};

// Prints tables and writes options.json_path. Throws Error(usage) for options out of range.
void bench_gpu(const GpuBenchOptions& options, std::FILE* out);

}  // namespace metro
