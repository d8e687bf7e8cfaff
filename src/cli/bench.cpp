#include "cli/bench_command.hpp"

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

}  // namespace metro
