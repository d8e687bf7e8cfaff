// `metro bench`: measures parts of the program alone, without a job.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// `metro bench route`. Empty lists: the defaults of the benchmark.
struct BenchRouteOptions {
  std::vector<std::string> shapes;  // "128/8"
  std::vector<double> replications;
  std::vector<std::int64_t> batch_sizes;
  std::int64_t top_k = 8;
  double skew = 0.7;
  std::int64_t ranks_per_node = 8;
  std::int64_t num_batches = 32;
  std::int64_t repetitions = 9;
  std::string counts_path;
  std::string json_path;
};

// Prints to standard output. Throws what bench_route() throws.
ExitCode bench_route_command(const BenchRouteOptions& options);

// `metro bench kernels`. Empty lists: the defaults of the benchmark.
struct BenchKernelsOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t hidden = 0;
  std::int64_t expert_width = 0;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> threads;
  std::vector<std::string> simd;
  std::string stored_type = "bf16";
  std::int64_t weight_mib = 1280;
  std::int64_t experts_per_call = 16;
  std::int64_t repetitions = 7;
  bool experts_only = false;
  std::string json_path;
};

// Prints to standard output. Throws what bench_kernels() throws.
ExitCode bench_kernels_command(const BenchKernelsOptions& options);

}  // namespace metro
