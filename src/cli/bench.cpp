#include "cli/bench_command.hpp"

#include "base/build_info.hpp"
#include "bench/decode_bench.hpp"
#include "bench/exchange_bench.hpp"
#include "bench/kernel_bench.hpp"
#include "bench/load_bench.hpp"
#include "bench/route_bench.hpp"
#include "cli/kernel_settings.hpp"
#include "cli/standard_output.hpp"
#include "mpi_launch/kokkos_runtime.hpp"
#include "transport/agree.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

namespace metro {

namespace {

struct KokkosSession {
  KokkosSession() { initialise_kokkos(1, true); }
  ~KokkosSession() { finalise_kokkos(); }
  KokkosSession(const KokkosSession&) = delete;
  KokkosSession& operator=(const KokkosSession&) = delete;
};

// Calls `bench` on all ranks of the job, with Kokkos running.
ExitCode bench_on_ranks(const Process& process, const std::function<void(Transport&)>& bench) {
  return on_ranks(process, [&](World& world) {
    const std::unique_ptr<Transport> transport = transport_for(world, start_timeout_s);
    require_same(*transport, "build", build_description());
    agree(*transport, [&world] { world.start_kokkos(1); });
    bench(*transport);
    agree(*transport, flush_stdout);
    return ExitCode::done;
  });
}

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
  if (!options.stored_types.empty()) {
    bench.stored_types = options.stored_types;
  }
  if (!options.simd.empty()) {
    bench.simd = options.simd;
  }
  bench.model = options.model;
  bench.hidden = options.hidden;
  bench.expert_width = options.expert_width;
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

ExitCode bench_decode_command(const BenchDecodeOptions& options, const Process& process) {
  DecodeBenchOptions bench;
  if (!options.batch_sizes.empty()) {
    bench.batch_sizes = options.batch_sizes;
  }
  if (!options.replications.empty()) {
    bench.replications = options.replications;
  }
  if (!options.weights.empty()) {
    bench.weights = options.weights;
  }
  if (!options.policies.empty()) {
    bench.policies = options.policies;
  }
  if (!options.threads.empty()) {
    bench.threads = options.threads;
  }
  bench.model = options.model;
  bench.num_layers = options.num_layers;
  bench.vocab = options.vocab;
  bench.context = options.context;
  bench.prefill_tokens = options.prefill_tokens;
  bench.flush_mib = options.flush_mib;
  bench.repetitions = options.repetitions;
  bench.json_path = options.json_path;
  return bench_on_ranks(process, [&](Transport& transport) {
    use_simd_level(options.simd, "--simd", transport);
    bench_decode(bench, transport, stdout);
  });
}

ExitCode bench_exchange_command(const BenchExchangeOptions& options, const Process& process) {
  ExchangeBenchOptions bench;
  if (!options.batch_sizes.empty()) {
    bench.batch_sizes = options.batch_sizes;
  }
  bench.model = options.model;
  bench.hidden = options.hidden;
  bench.top_k = options.top_k;
  bench.num_experts = options.num_experts;
  bench.replication = options.replication;
  bench.repetitions = options.repetitions;
  bench.latency_us = options.latency_us;
  bench.bandwidth_gb = options.bandwidth_gb;
  bench.memory_gb = options.memory_gb;
  bench.json_path = options.json_path;
  return bench_on_ranks(process, [&](Transport& transport) { bench_exchange(bench, transport, stdout); });
}

ExitCode bench_load_command(const BenchLoadOptions& options, const Process& process) {
  LoadBenchOptions bench;
  bench.checkpoint_path = options.checkpoint_path;
  if (!options.threads.empty()) {
    bench.threads = options.threads;
  }
  bench.repetitions = options.repetitions;
  bench.json_path = options.json_path;
  return bench_on_ranks(process, [&](Transport& transport) { bench_load(bench, transport, stdout); });
}

}  // namespace metro
