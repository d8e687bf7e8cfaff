// `metro bench`: measures parts of the program alone, without a job.
#pragma once

#include "base/error.hpp"
#include "cli/on_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// `metro bench load`. An empty list: the default of the benchmark.
struct BenchLoadOptions {
  std::string checkpoint_path;
  std::vector<std::int64_t> threads;
  std::int64_t repetitions = 7;
  std::string json_path;
};

// Becomes part of the job. Prints to standard output of rank 0. Throws what bench_load() throws.
ExitCode bench_load_command(const BenchLoadOptions& options, const Process& process);

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
  std::vector<std::string> stored_types;
  std::int64_t weight_mib = 1280;
  std::int64_t experts_per_call = 16;
  std::int64_t repetitions = 7;
  bool experts_only = false;
  std::string json_path;
};

// Prints to standard output. Throws what bench_kernels() throws.
ExitCode bench_kernels_command(const BenchKernelsOptions& options);

// `metro bench decode`, alone or on all ranks of an mpirun. Empty lists: the defaults of the benchmark.
struct BenchDecodeOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t num_layers = 2;
  std::int64_t vocab = 2048;
  std::int64_t context = 64;
  std::vector<std::int64_t> batch_sizes;
  std::vector<std::string> weights;
  std::vector<double> replications;
  std::vector<std::string> policies;
  std::vector<std::int64_t> threads;
  std::int64_t prefill_tokens = 0;
  std::int64_t flush_mib = 512;
  std::int64_t repetitions = 9;
  std::string simd = "auto";
  std::string json_path;
};

// Prints to standard output, on rank 0. Errors as on_ranks().
ExitCode bench_decode_command(const BenchDecodeOptions& options, const Process& process);

// `metro bench exchange`, alone or on all ranks of an mpirun. Empty list: the defaults of the benchmark.
struct BenchExchangeOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::int64_t num_experts = 0;
  std::vector<std::int64_t> batch_sizes;
  double replication = 1.0;
  std::int64_t repetitions = 9;
  double latency_us = 10.0;
  double bandwidth_gb = 0.0;
  double memory_gb = 3350.0;
  std::string json_path;
};

// As bench_decode_command().
ExitCode bench_exchange_command(const BenchExchangeOptions& options, const Process& process);

}  // namespace metro
