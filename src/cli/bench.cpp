#include "cli/bench_command.hpp"

#include "bench/kernel_bench.hpp"
#include "bench/route_bench.hpp"
#include "cli/standard_output.hpp"
#include "mpi_launch/kokkos_runtime.hpp"

#include <cstdio>

namespace metro {

namespace {

struct KokkosSession {
  KokkosSession() { initialise_kokkos(1, true); }
  ~KokkosSession() { finalise_kokkos(); }
  KokkosSession(const KokkosSession&) = delete;
  KokkosSession& operator=(const KokkosSession&) = delete;
};

}  // namespace

ExitCode bench_route_command(const BenchRouteOptions& options) {
  RouteBenchOptions bench;
  if (!options.shapes.empty()) {
    bench.shapes.clear();
    for (const std::string& shape : options.shapes) {
      bench.shapes.push_back(parse_shape(shape));
    }
  }
  if (!options.replications.empty()) {
    bench.replications = options.replications;
  }
  if (!options.batch_sizes.empty()) {
    bench.batch_sizes = options.batch_sizes;
  }
  bench.top_k = options.top_k;
  bench.skew = options.skew;
  bench.ranks_per_node = options.ranks_per_node;
  bench.num_batches = options.num_batches;
  bench.repetitions = options.repetitions;
  bench.counts_path = options.counts_path;
  bench.json_path = options.json_path;
  const KokkosSession kokkos;
  bench_route(bench, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_kernels_command(const BenchKernelsOptions& options) {
  KernelBenchOptions bench;
  if (!options.rows.empty()) {
    bench.rows = options.rows;
  }
  if (!options.threads.empty()) {
    bench.threads = options.threads;
  }
  if (!options.simd.empty()) {
    bench.simd = options.simd;
  }
  bench.model = options.model;
  bench.hidden = options.hidden;
  bench.expert_width = options.expert_width;
  bench.stored_type = options.stored_type;
  bench.weight_mib = options.weight_mib;
  bench.experts_per_call = options.experts_per_call;
  bench.repetitions = options.repetitions;
  bench.experts_only = options.experts_only;
  bench.json_path = options.json_path;
  const KokkosSession kokkos;
  bench_kernels(bench, stdout);
  flush_stdout();
  return ExitCode::done;
}

}  // namespace metro
