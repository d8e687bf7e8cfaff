// Machines, and the points of a table of bench scaling.
#include "base/error.hpp"
#include "bench/scaling_bench.hpp"
#include "placement/placement.hpp"

#include <algorithm>
#include <functional>

namespace metro {

namespace {

ScalingPoint point_of(const ScalingBenchOptions& options, const ModelShape& shape, const RowSampler& sampler,
                      std::int64_t num_ranks, std::int64_t batch) {
  const Machine machine = machine_of(options);
  const CostFigures figures = figures_of(options);
  const auto num_rows = static_cast<double>(batch);
  ScalingPoint point;
  point.num_ranks = num_ranks;
  point.batch = batch;
  point.slots_per_rank = slots_for_replication(shape.num_experts, num_ranks, options.replication);
  point.rows = sampler.sample(*routing_policy_named(options.policy), num_ranks, batch, point.slots_per_rank);
  point.cost = step_cost(shape, num_ranks, num_rows, point.rows, machine, figures);
  point.memory = rank_memory(shape, num_ranks, num_rows, point.slots_per_rank, figures);
  point.fits = point.memory.total() <= machine.memory_bytes;
  point.tokens_per_s = num_rows / point.cost.total();
  const auto moe_layers = static_cast<double>(shape.num_layers - shape.num_dense_layers);
  point.gathered_share = moe_layers * gathered_seconds(shape, num_ranks, num_rows, machine) / point.cost.total();
  return point;
}

}  // namespace

Machine published_machine(const std::string& name, const std::string& option) {
  const std::vector<Machine> machines{
      // NVIDIA's data sheets, read in November 2026; bf16 without sparsity, NVLink in one direction, a port for each of
      // the 8 GPUs of a node. A100 SXM 80 GB with ConnectX-6 (HDR 200 Gb/s); H100 SXM and H200 SXM with ConnectX-7 (NDR
      // 400 Gb/s); B200 as an eighth of a DGX B200, with the same.
      {"a100", 8, 2.039e12, 80e9, 312e12, 300e9, 25e9},
      {"h100", 8, 3.35e12, 80e9, 989e12, 450e9, 50e9},
      {"h200", 8, 4.8e12, 141e9, 989e12, 450e9, 50e9},
      {"b200", 8, 8e12, 180e9, 2250e12, 900e9, 50e9},
      // A socket of Intel's Xeon Platinum 8592+: 8 channels of DDR5-5600; 64 cores at 1.9 GHz with two AVX-512 FMA in
      // fp32. Two to a node with one NDR port; 512 GB and 100 GB/s between sockets are assumed.
      {"cpu", 2, 8 * 8 * 5.6e9, 512e9, 64 * 2 * 16 * 2 * 1.9e9, 100e9, 25e9}};
  for (const Machine& machine : machines) {
    if (machine.name == name) {
      return machine;
    }
  }
  throw Error(ExitCode::usage, option + " " + one_line(name) + ": must be a100, h100, h200, b200 or cpu");
}

Machine machine_of(const ScalingBenchOptions& options) {
  Machine machine = published_machine(options.machine, "bench scaling: --machine");
  const auto replace = [](double& value, double given, double unit) { value = given > 0.0 ? given * unit : value; };
  machine.ranks_per_node = options.ranks_per_node > 0 ? options.ranks_per_node : machine.ranks_per_node;
  replace(machine.memory_bytes_per_s, options.memory_gbs, 1e9);
  replace(machine.memory_bytes, options.memory_gb, 1e9);
  replace(machine.flops, options.tflops, 1e12);
  replace(machine.inside_bytes_per_s, options.inside_gbs, 1e9);
  replace(machine.network_bytes_per_s, options.network_gbs, 1e9);
  return machine;
}

CostFigures figures_of(const ScalingBenchOptions& options) {
  CostFigures figures;
  const auto replace = [](double& value, double given, double unit) { value = given >= 0.0 ? given * unit : value; };
  replace(figures.latency_s, options.latency_us, 1e-6);
  replace(figures.hop_s, options.hop_us, 1e-6);
  replace(figures.message_s, options.message_us, 1e-6);
  replace(figures.routing_s, options.routing_us, 1e-6);
  replace(figures.routing_rank_s, options.routing_rank_ns, 1e-9);
  replace(figures.routing_assignment_s, options.routing_assignment_ns, 1e-9);
  replace(figures.sequence_s, options.sequence_ns, 1e-9);
  figures.context = static_cast<double>(options.context);
  figures.weight_bytes = options.weights == "int8" ? 1.0 : 2.0;
  return figures;
}

std::vector<ScalingPoint> scaling_points(const ScalingBenchOptions& options, const ModelShape& shape,
                                         const RowSampler& sampler, std::int64_t batch) {
  std::vector<ScalingPoint> points;
  double base = 0.0;
  for (const std::int64_t num_ranks : options.ranks) {
    points.push_back(point_of(options, shape, sampler, num_ranks, batch));
    ScalingPoint& point = points.back();
    base = base == 0.0 && point.fits ? point.tokens_per_s : base;
    point.efficiency = base == 0.0 ? 0.0 : point.tokens_per_s / base;
  }
  return points;
}

ScalingLimits limits_of(const std::vector<ScalingPoint>& points) {
  const auto first_where = [&](const std::function<bool(const ScalingPoint&)>& is_true) -> std::int64_t {
    const auto found = std::find_if(points.begin(), points.end(), [&](const ScalingPoint& point) {
      return point.efficiency > 0.0 && is_true(point);
    });
    return found == points.end() ? 0 : found->num_ranks;
  };
  double most = 0.0;
  for (const ScalingPoint& point : points) {
    most = std::max(most, point.efficiency);
  }
  return {first_where([](const ScalingPoint&) { return true; }),
          first_where([&](const ScalingPoint& point) { return point.efficiency >= most; }),
          first_where([](const ScalingPoint& point) { return point.efficiency < 0.5; }),
          first_where([](const ScalingPoint& point) {
            return point.cost.routing + point.cost.schedule > 0.1 * point.cost.total();
          }),
          first_where([](const ScalingPoint& point) { return point.gathered_share > 0.1; })};
}

}  // namespace metro
