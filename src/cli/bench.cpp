#include "cli/bench_command.hpp"

#include "base/build_info.hpp"
#include "bench/route_bench.hpp"
#include "cli/kernel_settings.hpp"
#include "cli/standard_output.hpp"
#include "mpi_launch/devices.hpp"
#include "mpi_launch/kokkos_runtime.hpp"
#include "transport/agree.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

namespace metro {

namespace {

struct KokkosSession {
  KokkosSession() { initialise_kokkos(1, true); }
  ~KokkosSession() { finalise_kokkos(); }
  KokkosSession(const KokkosSession&) = delete;
  KokkosSession& operator=(const KokkosSession&) = delete;
};

// Calls `bench` on all ranks of the job, with Kokkos running. threads: the numbers of threads of a rank that it tries.
ExitCode bench_on_ranks(const Process& process, const std::vector<std::int64_t>& threads,
                        const std::function<void(Transport&)>& bench) {
  return on_ranks(process, [&](World& world) {
    const std::unique_ptr<Transport> transport = transport_for(world, World::default_timeout_s);
    require_same(*transport, "build", build_description());
    const DeviceMap devices = map_devices(*transport, world.rank_to_node(), world.rank_to_host(), false);
    agree(*transport, [&] { world.start_kokkos(1, device_of(devices, world.rank())); });
    warn_of_binding(*std::max_element(threads.begin(), threads.end()), *transport);
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

ExitCode bench_kernels_command(const KernelBenchOptions& options) {
  const KokkosSession kokkos;
  bench_kernels(options, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_replicated_command(const ReplicatedBenchOptions& options) {
  const KokkosSession kokkos;
  bench_replicated(options, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_scaling_command(const ScalingBenchOptions& options) {
  bench_scaling(options, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_gpu_command(const GpuBenchOptions& options) {
  bench_gpu(options, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_convert_command(const ConvertBenchOptions& options) {
  bench_convert(options, stdout);
  flush_stdout();
  return ExitCode::done;
}

ExitCode bench_decode_command(const BenchDecodeOptions& options, const Process& process) {
  return bench_on_ranks(process, options.bench.threads, [&](Transport& transport) {
    use_simd_level(options.simd, "--simd", transport);
    bench_decode(options.bench, transport, stdout);
  });
}

ExitCode bench_exchange_command(const ExchangeBenchOptions& options, const Process& process) {
  return bench_on_ranks(process, {1}, [&](Transport& transport) { bench_exchange(options, transport, stdout); });
}

ExitCode bench_load_command(const LoadBenchOptions& options, const Process& process) {
  return bench_on_ranks(process, options.threads,
                        [&](Transport& transport) { bench_load(options, transport, stdout); });
}

}  // namespace metro
