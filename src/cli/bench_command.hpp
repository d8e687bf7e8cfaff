// `metro bench`: measures parts of the program alone, without a job.
#pragma once

#include "base/error.hpp"
#include "bench/convert_bench.hpp"
#include "bench/decode_bench.hpp"
#include "bench/exchange_bench.hpp"
#include "bench/gpu_bench.hpp"
#include "bench/kernel_bench.hpp"
#include "bench/load_bench.hpp"
#include "bench/replicated_bench.hpp"
#include "bench/scaling_bench.hpp"
#include "cli/on_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// Each takes what its benchmark takes, prints to standard output (on rank 0) and throws what the benchmark throws.
// Those with a Process run on all ranks of an mpirun, or alone; their errors are those of on_ranks().

ExitCode bench_kernels_command(const KernelBenchOptions& options);
ExitCode bench_replicated_command(const ReplicatedBenchOptions& options);
ExitCode bench_scaling_command(const ScalingBenchOptions& options);
ExitCode bench_gpu_command(const GpuBenchOptions& options);
ExitCode bench_convert_command(const ConvertBenchOptions& options);
ExitCode bench_exchange_command(const ExchangeBenchOptions& options, const Process& process);
ExitCode bench_load_command(const LoadBenchOptions& options, const Process& process);

struct BenchDecodeOptions {
  DecodeBenchOptions bench;
  std::string simd = "auto";  // of the kernels
};

ExitCode bench_decode_command(const BenchDecodeOptions& options, const Process& process);

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

ExitCode bench_route_command(const BenchRouteOptions& options);

}  // namespace metro
