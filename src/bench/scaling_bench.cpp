// The options of the benchmark, its tables and its JSON file.
#include "bench/scaling_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

// `bench` is what was called: "bench scaling".
void require(const std::string& bench, bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, bench + ": " + one_line(problem));
  }
}

void within(const std::string& bench, const char* name, auto value, auto least, auto most) {
  require(bench, value >= least && value <= most,
          fmt::format("{} {}: must be from {} to {}", name, value, least, most));
}

void check_figures(const ScalingBenchOptions& options, const std::string& bench) {
  const std::array<std::pair<const char*, double>, 5> of_machine{{{"--memory-gbs", options.memory_gbs},
                                                                  {"--memory-gb", options.memory_gb},
                                                                  {"--tflops", options.tflops},
                                                                  {"--inside-gbs", options.inside_gbs},
                                                                  {"--network-gbs", options.network_gbs}}};
  for (const auto& [name, value] : of_machine) {
    require(bench, value == 0.0 || (value > 0.0 && value <= 1e9),
            fmt::format("{} {}: must be above 0, to 1e9", name, value));
  }
  const std::array<std::pair<const char*, double>, 7> of_costs{
      {{"--latency-us", options.latency_us},
       {"--hop-us", options.hop_us},
       {"--message-us", options.message_us},
       {"--routing-us", options.routing_us},
       {"--routing-rank-ns", options.routing_rank_ns},
       {"--routing-assignment-ns", options.routing_assignment_ns},
       {"--sequence-ns", options.sequence_ns}}};
  for (const auto& [name, value] : of_costs) {
    require(bench, value == -1.0 || (value >= 0.0 && value <= 1e9),
            fmt::format("{} {}: must be 0 to 1e9", name, value));
  }
}

void print_head(std::FILE* out, const ScalingBenchOptions& options) {
  const Machine machine = machine_of(options);
  const CostFigures figures = figures_of(options);
  fmt::print(out, "{}\n", build_description());
  fmt::print(
      out,
      "on paper, nothing is measured; sources and what is left out: docs/scaling.md\n"
      "published: {}, {} ranks a node; of a rank memory {:.0f} GB/s, {:.0f} GB, {:.0f} Tflop/s, to its node {:.0f} "
      "GB/s, to others {:.0f} GB/s\n",
      machine.name, machine.ranks_per_node, 1e-9 * machine.memory_bytes_per_s, 1e-9 * machine.memory_bytes,
      1e-12 * machine.flops, 1e-9 * machine.inside_bytes_per_s, 1e-9 * machine.network_bytes_per_s);
  fmt::print(
      out,
      "measured: routing {:.1f} us a layer + {:.0f} ns a rank + {:.1f} ns an assignment; {:.0f} ns a sequence for "
      "plan, record, scheduler\n",
      1e6 * figures.routing_s, 1e9 * figures.routing_rank_s, 1e9 * figures.routing_assignment_s,
      1e9 * figures.sequence_s);
  fmt::print(
      out,
      "assumed: a collective {:.1f} us, + {:.1f} us for every doubling of nodes (all-gather), + {:.2f} us for every "
      "rank on other nodes (all-to-all); full bandwidth\n",
      1e6 * figures.latency_s, 1e6 * figures.hop_s, 1e6 * figures.message_s);
  fmt::print(
      out,
      "chosen: {}, {} weights, {} tokens of context, {} replicas at least; popularity of experts log-normal with "
      "deviation {}\n",
      options.policy, options.weights, options.context, options.replication, options.skew);
}

std::string limit_text(std::int64_t num_ranks, const ScalingBenchOptions& options) {
  return num_ranks > 0 ? fmt::format("from {} ranks", num_ranks)
                       : fmt::format("not up to {} ranks", options.ranks.back());
}

void print_points(std::FILE* out, const ScalingBenchOptions& options, const std::vector<ScalingPoint>& points) {
  fmt::print(out, "{:>4} {:>5} {:>7} {:>7} {:>9} {:>8} {:>9} {:>8} {:>9} {:>8} {:>9} {:>6} {:>10}\n", "rows", "ranks",
             "lambda", "served", "attention", "experts", "exchange", "routing", "schedule", "ms/step", "tokens/s",
             "eff.", "allgather");
  for (const ScalingPoint& point : points) {
    const StepCost& cost = point.cost;
    fmt::print(out,
               "{:>4} {:>5} {:>7.2f} {:>7.0f} {:>9.3f} {:>8.3f} {:>9.3f} {:>8.3f} {:>9.3f} {:>8.2f} {:>9.1f} {:>6} "
               "{:>9.0f}%\n",
               point.batch, point.num_ranks, point.rows.lambda, point.rows.assignments, 1e3 * cost.attention,
               1e3 * cost.experts, 1e3 * cost.exchange, 1e3 * cost.routing, 1e3 * cost.schedule, 1e3 * cost.total(),
               point.tokens_per_s, point.efficiency > 0.0 ? fmt::format("{:.0f}%", 100.0 * point.efficiency) : "-",
               100.0 * point.gathered_share);
  }
  const ScalingLimits limits = limits_of(points);
  if (limits.fitting == 0) {
    fmt::print(out, "     does not fit into the memory of {} ranks\n", options.ranks.back());
    return;
  }
  fmt::print(out,
             "     fits {}; most tokens/s of a rank with {}; less than half {}\n"
             "     routing and schedule above 10% of a step {}; the bytes of an allgather {}\n",
             limit_text(limits.fitting, options), limits.fastest, limit_text(limits.half_efficiency, options),
             limit_text(limits.replicated_work, options), limit_text(limits.gathered_rows, options));
}

void print_growth(std::FILE* out, const ModelShape& shape, const std::vector<ScalingPoint>& points) {
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  constexpr double mib = 1024.0 * 1024.0;
  fmt::print(out, "what grows with {} rows of each rank\n", points.front().batch);
  fmt::print(out, "{:>5} {:>14} {:>14} {:>15} {:>11} {:>9} {:>15} {:>9} {:>9}\n", "ranks", "replicated GiB",
             "experts GiB", "KV, rows in GiB", "of a rank", "fits", "allgather MiB", "host MiB", "requests");
  for (const ScalingPoint& point : points) {
    const RankMemory& memory = point.memory;
    fmt::print(out, "{:>5} {:>14.1f} {:>14.1f} {:>15.1f} {:>11.1f} {:>9} {:>15.1f} {:>9.1f} {:>9}\n", point.num_ranks,
               memory.replicated / gib, memory.experts / gib, (memory.kv + memory.buffers) / gib, memory.total() / gib,
               point.fits ? "yes" : "no",
               gathered_bytes(shape, point.num_ranks, static_cast<double>(point.batch)) / mib, memory.host / mib,
               request_window(point.num_ranks, point.batch));
  }
}

json json_of(const ScalingPoint& point) {
  return {{"ranks", point.num_ranks},
          {"rows_per_rank", point.batch},
          {"slots_per_rank", point.slots_per_rank},
          {"lambda", point.rows.lambda},
          {"assignments_of_busiest", point.rows.assignments},
          {"attention_s", point.cost.attention},
          {"experts_s", point.cost.experts},
          {"exchange_s", point.cost.exchange},
          {"routing_s", point.cost.routing},
          {"schedule_s", point.cost.schedule},
          {"step_s", point.cost.total()},
          {"tokens_per_s_of_rank", point.tokens_per_s},
          {"efficiency", point.efficiency},
          {"allgather_share", point.gathered_share},
          {"memory_bytes", point.memory.total()},
          {"replicated_bytes", point.memory.replicated},
          {"expert_bytes", point.memory.experts},
          {"host_bytes", point.memory.host},
          {"fits", point.fits}};
}

json json_of(const ScalingLimits& limits) {
  return {{"fitting", limits.fitting},
          {"fastest", limits.fastest},
          {"half_efficiency", limits.half_efficiency},
          {"replicated_work", limits.replicated_work},
          {"gathered_rows", limits.gathered_rows}};
}

// The tables of a model.
json scaling_of(const ScalingBenchOptions& options, const std::string& name, std::FILE* out) {
  const ModelShape& shape = model_shape(name, "bench scaling: --model");
  const RowSampler sampler = sampler_of(options, shape);
  const WeightCounts weights = weight_counts(shape);
  fmt::print(out, "\n{}: {:.1f} billion weights, {:.1f} of them on every rank, {:.2f} in an expert of all layers\n",
             name, 1e-9 * weights.total, 1e-9 * weights.replicated,
             1e-9 * weights.expert * static_cast<double>(shape.num_layers - shape.num_dense_layers));
  json tables = json::array();
  std::vector<ScalingPoint> points;
  for (const std::int64_t batch : options.batch_sizes) {
    points = scaling_points(options, shape, sampler, batch);
    print_points(out, options, points);
    json table = {{"model", name}, {"limits", json_of(limits_of(points))}, {"points", json::array()}};
    for (const ScalingPoint& point : points) {
      table["points"].push_back(json_of(point));
    }
    tables.push_back(std::move(table));
  }
  print_growth(out, shape, points);
  std::fflush(out);
  return tables;
}

json machine_json(const ScalingBenchOptions& options) {
  const Machine machine = machine_of(options);
  return {{"name", machine.name},
          {"ranks_per_node", machine.ranks_per_node},
          {"memory_bytes_per_s", machine.memory_bytes_per_s},
          {"memory_bytes", machine.memory_bytes},
          {"flops", machine.flops},
          {"inside_bytes_per_s", machine.inside_bytes_per_s},
          {"network_bytes_per_s", machine.network_bytes_per_s}};
}

json figures_json(const ScalingBenchOptions& options) {
  const CostFigures figures = figures_of(options);
  return {{"latency_s", figures.latency_s},           {"hop_s", figures.hop_s},
          {"message_s", figures.message_s},           {"routing_s", figures.routing_s},
          {"routing_rank_s", figures.routing_rank_s}, {"routing_assignment_s", figures.routing_assignment_s},
          {"sequence_s", figures.sequence_s},         {"context", figures.context},
          {"weight_bytes", figures.weight_bytes}};
}

}  // namespace

void check_scaling(const ScalingBenchOptions& options, const std::string& bench) {
  for (const std::string& name : options.models) {
    model_shape(name, bench + ": --model");
  }
  require(bench, !options.ranks.empty() && !options.batch_sizes.empty(), "no ranks or no rows");
  for (const std::int64_t ranks : options.ranks) {
    within(bench, "--ranks", ranks, 1, 1 << 14);
  }
  require(bench, std::is_sorted(options.ranks.begin(), options.ranks.end(), std::less_equal<>()),
          "--ranks: must be ascending");
  for (const std::int64_t batch : options.batch_sizes) {
    within(bench, "--batch", batch, 1, 4096);
    require(bench, batch * options.ranks.back() <= 1 << 20,
            fmt::format("--batch {}: with {} ranks more than 1048576 rows", batch, options.ranks.back()));
  }
  require(bench, routing_policy_named(options.policy).has_value(),
          fmt::format("--policy {}: no routing policy", options.policy));
  within(bench, "--replication", options.replication, 1.0, 64.0);
  within(bench, "--skew", options.skew, 0.0, 10.0);
  within(bench, "--context", options.context, 1, 1 << 24);
  require(bench, options.weights == "bf16" || options.weights == "int8",
          fmt::format("--weights {}: must be bf16 or int8", options.weights));
  within(bench, "--ranks-per-node", options.ranks_per_node, 0, 1 << 14);
  check_figures(options, bench);
}

std::vector<std::string> models_or_published(const std::vector<std::string>& models) {
  std::vector<std::string> names = models.empty() ? model_shape_names() : models;
  if (models.empty()) {
    std::erase_if(names, [](const std::string& name) { return !model_shape(name, "bench").is_published; });
  }
  return names;
}

RowSampler sampler_of(const ScalingBenchOptions& options, const ModelShape& shape) {
  constexpr std::int64_t least_rows = 1 << 14;  // that steps are made of, for a mean of few rows
  const std::int64_t most_batch = *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
  return RowSampler({.num_experts = shape.num_experts,
                     .num_tokens = std::max(least_rows, most_batch * options.ranks.back()),
                     .top_k = shape.top_k,
                     .skew = options.skew});
}

void bench_scaling(const ScalingBenchOptions& options, std::FILE* out) {
  check_scaling(options, "bench scaling");
  published_machine(options.machine, "bench scaling: --machine");
  if (!options.json_path.empty()) {
    require_room_for_output(options.json_path, true);
  }
  print_head(out, options);
  fmt::print(
      out,
      "\nrows: of each rank; lambda: replicas on the busiest rank; served: its assignments; ms of a step by part; "
      "tokens/s of a rank;\neff.: over those of the fewest ranks that fit; allgather: its bytes, as a share of the "
      "step\n");
  json tables = json::array();
  for (const std::string& name : models_or_published(options.models)) {
    for (json& table : scaling_of(options, name, out)) {
      tables.push_back(std::move(table));
    }
  }
  if (!options.json_path.empty()) {
    const json document = {{"benchmark", "scaling"},
                           {"build", build_description()},
                           {"machine", machine_json(options)},
                           {"figures", figures_json(options)},
                           {"policy", options.policy},
                           {"replication", options.replication},
                           {"skew", options.skew},
                           {"tables", std::move(tables)}};
    write_file_atomically(options.json_path, document.dump(1) + "\n");
  }
}

}  // namespace metro
