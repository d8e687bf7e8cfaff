#include "bench/gpu_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/gpu_model.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace metro {

namespace {

using nlohmann::json;

ScalingBenchOptions scaling_options(const GpuBenchOptions& options, const std::string& gpu) {
  ScalingBenchOptions scaling;
  static_cast<PaperOptions&>(scaling) = options;
  scaling.machine = gpu;
  return scaling;
}

LaunchCosts costs_of(const GpuBenchOptions& options) {
  return {1e-6 * options.launch_us, 1e-6 * options.gap_us, 1e-6 * options.graph_us};
}

void check(const GpuBenchOptions& options) {
  check_scaling(scaling_options(options, ""), "bench gpu");
  const auto require = [](bool is_fine, const std::string& problem) {
    if (!is_fine) {
      throw Error(ExitCode::usage, "bench gpu: " + one_line(problem));
    }
  };
  require(!options.gpus.empty(), "no GPUs");
  for (const std::string& gpu : options.gpus) {
    published_machine(gpu, "bench gpu: --gpu");
    require(gpu != "cpu", "--gpu cpu: must be a100, h100, h200 or b200");
  }
  for (const auto& [name, value] : {std::pair("--launch-us", options.launch_us), std::pair("--gap-us", options.gap_us),
                                    std::pair("--graph-us", options.graph_us)}) {
    require(value >= 0.0 && value <= 1e6, fmt::format("{} {}: must be from 0 to 1e6", name, value));
  }
}

void print_head(std::FILE* out, const GpuBenchOptions& options) {
  fmt::print(
      out,
      "{}\non paper, nothing is measured; sources and what is left out: docs/gpu.md\n"
      "assumed: {} us of the host to launch a kernel, {} us between kernels, {} us to launch a graph\n"
      "chosen: {}, {} weights, {} tokens of context, {} replicas at least; popularity of experts log-normal with "
      "deviation {}\n\n"
      "MB: read by the busiest rank in a layer with experts; launches: kernels of such a layer, of a step; read: "
      "ms that\nmemory takes; alone: ms of a step with kernels launched one by one, graphs: recorded ones; "
      "tokens/s: of a rank, from graphs\n",
      build_description(), options.launch_us, options.gap_us, options.graph_us, options.policy, options.weights,
      options.context, options.replication, options.skew);
}

void print_model(std::FILE* out, const ModelShape& shape) {
  fmt::print(out, "\n{}: kernels of a layer\n", shape.name);
  for (const StepLaunch& launch : step_launches(shape, RoutedBy::device, shape.top_k)) {
    const bool is_of_layer = launch.part == StepPart::attention || launch.part == StepPart::experts;
    if (is_of_layer && launch.times > 0) {
      fmt::print(out, "  {:>2} {}\n", launch.times, launch.what);
    }
  }
  fmt::print(out,
             "{:>5} {:>4} {:>5} {:>7} {:>9} {:>7} {:>7} {:>8} {:>8} {:>9} {:>7} {:>8} {:>8} {:>8} {:>9} {:>7} {:>5}\n",
             "GPU", "rows", "ranks", "lambda", "attention", "KV MB", "beside", "experts", "GB/step", "launches", "read",
             "exchange", "alone", "graphs", "tokens/s", "GB", "fits");
}

void print_step(std::FILE* out, const std::string& gpu, const ScalingPoint& point, const GpuStep& step) {
  fmt::print(out,
             "{:>5} {:>4} {:>5} {:>7.2f} {:>9.1f} {:>7.1f} {:>7.1f} {:>8.1f} {:>8.2f} {:>9} {:>7.2f} {:>8.2f} {:>8.2f} "
             "{:>8.2f} {:>9.1f} {:>7.1f} {:>5}\n",
             gpu, point.batch, point.num_ranks, point.rows.lambda, 1e-6 * step.layer.attention, 1e-6 * step.layer.kv,
             1e-6 * step.layer.beside_experts, 1e-6 * step.layer.experts, 1e-9 * step.bytes,
             fmt::format("{}, {}", step.layer_launches, step.launches), 1e3 * step.read_s, 1e3 * step.exchange_s,
             1e3 * step.alone_s, 1e3 * step.recorded_s, static_cast<double>(point.batch) / step.recorded_s,
             1e-9 * point.memory.total(), point.fits ? "yes" : "no");
}

json json_of(const std::string& model, const std::string& gpu, const ScalingPoint& point, const GpuStep& step) {
  return {{"model", model},
          {"gpu", gpu},
          {"rows_per_rank", point.batch},
          {"ranks", point.num_ranks},
          {"lambda", point.rows.lambda},
          {"attention_bytes_of_layer", step.layer.attention},
          {"kv_bytes_of_layer", step.layer.kv},
          {"beside_experts_bytes_of_layer", step.layer.beside_experts},
          {"expert_bytes_of_layer", step.layer.experts},
          {"bytes_of_step", step.bytes},
          {"launches_of_layer", step.layer_launches},
          {"launches_of_step", step.launches},
          {"graphs_of_step", step.graphs},
          {"read_s", step.read_s},
          {"exchange_s", step.exchange_s},
          {"step_launched_alone_s", step.alone_s},
          {"step_from_graphs_s", step.recorded_s},
          {"memory_bytes", point.memory.total()},
          {"fits", point.fits}};
}

}  // namespace

void bench_gpu(const GpuBenchOptions& options, std::FILE* out) {
  check(options);
  if (!options.json_path.empty()) {
    require_room_for_output(options.json_path, true);
  }
  print_head(out, options);
  json points = json::array();
  for (const std::string& name : models_or_published(options.models)) {
    const ModelShape& shape = model_shape(name, "bench gpu: --model");
    const RowSampler sampler = sampler_of(scaling_options(options, ""), shape);
    print_model(out, shape);
    for (const std::string& gpu : options.gpus) {
      const ScalingBenchOptions scaling = scaling_options(options, gpu);
      for (const std::int64_t batch : options.batch_sizes) {
        for (const ScalingPoint& point : scaling_points(scaling, shape, sampler, batch)) {
          const GpuStep step = gpu_step(shape, point, figures_of(scaling), costs_of(options));
          print_step(out, gpu, point, step);
          points.push_back(json_of(name, gpu, point, step));
        }
      }
    }
    std::fflush(out);
  }
  if (!options.json_path.empty()) {
    const json document = {{"benchmark", "gpu"},
                           {"build", build_description()},
                           {"launch_s", costs_of(options).launch_s},
                           {"gap_s", costs_of(options).gap_s},
                           {"graph_s", costs_of(options).graph_s},
                           {"policy", options.policy},
                           {"weights", options.weights},
                           {"context", options.context},
                           {"points", std::move(points)}};
    write_file_atomically(options.json_path, document.dump(1) + "\n");
  }
}

}  // namespace metro
