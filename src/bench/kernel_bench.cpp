// The settings of the benchmark, its table and its JSON file.
#include "bench/kernel_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/load_average.hpp"
#include "bench/read_speed.hpp"
#include "kernels/cpu_settings.hpp"
#include "kernels/packed_matrix.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench kernels: " + one_line(problem));
  }
}

KernelShapes shapes_of(const KernelBenchOptions& options) {
  const ModelShape& model = model_shape(options.model, "bench kernels: --model");
  KernelShapes shapes{model.name, model.hidden, model.expert_width, model.linears};
  if (options.hidden > 0 || options.expert_width > 0) {
    shapes.model = "custom";
    shapes.linears.clear();
  }
  if (options.experts_only) {
    shapes.linears.clear();
  }
  shapes.hidden = options.hidden > 0 ? options.hidden : shapes.hidden;
  shapes.expert_width = options.expert_width > 0 ? options.expert_width : shapes.expert_width;
  return shapes;
}

void require_inputs(const KernelShapes& shapes, StoredType type) {
  std::vector<std::int64_t> inputs = {shapes.hidden, shapes.expert_width};
  for (const LinearShape& linear : shapes.linears) {
    inputs.push_back(linear.in);
  }
  for (const std::int64_t in : inputs) {
    require(type != StoredType::mxfp4 || in % mxfp4_block == 0,
            fmt::format("--type mxfp4: a matrix has {} inputs, no multiple of {}", in, mxfp4_block));
  }
}

// Bytes of the largest expert or matrix: a pass must read at least one.
std::int64_t largest_unit(const KernelShapes& shapes, StoredType type) {
  std::int64_t largest = 2 * packed_bytes(type, shapes.expert_width, shapes.hidden) +
                         packed_bytes(type, shapes.hidden, shapes.expert_width);
  for (const LinearShape& linear : shapes.linears) {
    largest = std::max(largest, packed_bytes(type, linear.out, linear.in));
  }
  return largest;
}

void check(const KernelBenchOptions& options) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    require(value >= least && value <= most, fmt::format("{} {}: must be from {} to {}", name, value, least, most));
  };
  within("--hidden", options.hidden, 0, 1 << 20);
  within("--width", options.expert_width, 0, 1 << 20);
  within("--repetitions", options.repetitions, 7, 100000);
  within("--weights", options.weight_mib, 1, 1 << 20);
  within("--experts-per-call", options.experts_per_call, 1, 4096);
  for (const std::int64_t rows : options.rows) {
    within("--rows", rows, 1, 4096);
  }
  for (const std::int64_t threads : options.threads) {
    within("--threads", threads, 1, 1024);
  }
  for (const std::string& simd : options.simd) {
    const SimdLevel level = simd_level_of(simd);
    require(level <= best_simd_level(),
            fmt::format("--simd {}: the best that this CPU has is {}", simd, name_of(best_simd_level())));
  }
  for (const std::string& type : options.stored_types) {
    require_inputs(shapes_of(options), bench_type_of(type));
    const std::int64_t unit = largest_unit(shapes_of(options), bench_type_of(type));
    require(unit <= options.weight_mib << 20,
            fmt::format("--weights {}: the largest expert or matrix alone has {} bytes", options.weight_mib, unit));
  }
}

// The same kernel and rows with the first of the types.
const KernelTiming& first_type_of(const KernelTiming& timing, const std::vector<KernelTiming>& timings) {
  return *std::find_if(timings.begin(), timings.end(), [&](const KernelTiming& other) {
    return other.kernel == timing.kernel && other.num_rows == timing.num_rows;
  });
}

void print_setting(std::FILE* out, const KernelSetting& setting) {
  fmt::print(out, "\n{}, {} thread{}; reading alone is fastest {}\n", setting.simd, setting.num_threads,
             setting.num_threads == 1 ? "" : "s", description_of(setting.limit_order));
  fmt::print(out, "  {:<10}{:<5}{:>5}{:>12}{:>12}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}{:>10}{:>9}{:>8}{:>9}\n", "kernel",
             "type", "rows", "us", "median", "GB/s", "median", "limit", "median", "ratio", "median", "GFLOP/s",
             "of peak", "speed", "median");
  for (const KernelTiming& t : setting.timings) {
    const KernelTiming& first = first_type_of(t, setting.timings);
    fmt::print(out,
               "  {:<10}{:<5}{:>5}{:>12.1f}{:>12.1f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>8.2f}{:>9.2f}{:>10.1f}{:>9.2f}"
               "{:>8.2f}{:>9.2f}\n",
               t.kernel, name_of(t.type), t.num_rows, t.us_min, t.us_median, t.gb_per_s_max, t.gb_per_s_median,
               t.limit_max, t.limit_median, t.ratio_of_best(), t.ratio_of_medians(), t.gflop_per_s_median,
               t.share_of_peak(), first.us_min / t.us_min, first.us_median / t.us_median);
  }
}

json json_of(const KernelSetting& setting) {
  json kernels = json::array();
  for (const KernelTiming& t : setting.timings) {
    kernels.push_back({{"kernel", t.kernel},
                       {"stored_type", name_of(t.type)},
                       {"rows", t.num_rows},
                       {"bytes", t.bytes},
                       {"us_min", t.us_min},
                       {"us_median", t.us_median},
                       {"gb_per_s_max", t.gb_per_s_max},
                       {"gb_per_s_median", t.gb_per_s_median},
                       {"limit_gb_per_s_max", t.limit_max},
                       {"limit_gb_per_s_median", t.limit_median},
                       {"gflop_per_s_median", t.gflop_per_s_median},
                       {"peak_gflop_per_s_median", t.peak_gflop_per_s},
                       {"ratio_of_best", t.ratio_of_best()},
                       {"ratio_of_medians", t.ratio_of_medians()}});
  }
  return {{"simd", setting.simd},
          {"threads", setting.num_threads},
          {"limit_prefetch_bytes", setting.limit_order.prefetch_bytes},
          {"limit_streams", setting.limit_order.num_streams},
          {"kernels", std::move(kernels)}};
}

}  // namespace

StoredType bench_type_of(const std::string& name) {
  for (const StoredType type :
       {StoredType::bf16, StoredType::f32, StoredType::int8, StoredType::fp8, StoredType::mxfp4}) {
    if (name == name_of(type)) {
      return type;
    }
  }
  throw Error(ExitCode::usage,
              fmt::format("bench kernels: --type {}: must be bf16, f32, int8, fp8 or mxfp4", one_line(name)));
}

void bench_kernels(const KernelBenchOptions& options, std::FILE* out) {
  check(options);
  const KernelShapes shapes = shapes_of(options);
  const auto load_before = load_average();
  fmt::print(out,
             "{}\nload average {:.2f} {:.2f} {:.2f}; {} repetitions over {} MiB of {} weights, in turn with reading\n",
             build_description(), load_before[0], load_before[1], load_before[2], options.repetitions,
             options.weight_mib, fmt::join(options.stored_types, ", "));
  fmt::print(out,
             "{}: hidden {}, expert width {}; {} experts a call\n"
             "us: per expert or matrix; GB/s: weights read, 10^9 bytes; limit: reading alone; best and median of each\n"
             "of peak: median of GFLOP/s / median of fused multiply-adds in registers; speed: against the first type\n",
             shapes.model, shapes.hidden, shapes.expert_width, options.experts_per_call);
  json settings = json::array();
  for (const std::string& simd : options.simd) {
    for (const std::int64_t num_threads : options.threads) {
      const KernelSetting setting = time_kernels(options, shapes, simd, num_threads);
      print_setting(out, setting);
      settings.push_back(json_of(setting));
    }
  }
  const auto load_after = load_average();
  fmt::print(out, "\nload average at the end {:.2f} {:.2f} {:.2f}\n", load_after[0], load_after[1], load_after[2]);
  if (!options.json_path.empty()) {
    const json document = {{"benchmark", "kernels"},
                           {"build", build_description()},
                           {"load_average_before", load_before},
                           {"load_average_after", load_after},
                           {"repetitions", options.repetitions},
                           {"weight_mib", options.weight_mib},
                           {"stored_types", options.stored_types},
                           {"experts_per_call", options.experts_per_call},
                           {"model", shapes.model},
                           {"hidden", shapes.hidden},
                           {"expert_width", shapes.expert_width},
                           {"settings", std::move(settings)}};
    write_file_atomically(options.json_path, document.dump(1) + "\n");
  }
}

}  // namespace metro
