// The options of the benchmark, its tables and its JSON file.
#include "bench/decode_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/load_average.hpp"
#include "bench/model_shapes.hpp"
#include "bench/read_speed.hpp"
#include "kernels/cpu_settings.hpp"
#include "routing/policy.hpp"
#include "transport/agree.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench decode: " + one_line(problem));
  }
}

void check(const DecodeBenchOptions& options) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    require(value >= least && value <= most, fmt::format("{} {}: must be from {} to {}", name, value, least, most));
  };
  model_shape(options.model, "bench decode: --model");
  within("--layers", options.num_layers, 1, 1000);
  within("--vocab", options.vocab, 1, 1 << 24);
  within("--context", options.context, 0, 1 << 20);
  within("--prefill", options.prefill_tokens, 0, 1 << 20);
  within("--flush", options.flush_mib, 1, 1 << 20);
  within("--repetitions", options.repetitions, 7, 100000);
  for (const std::int64_t batch : options.batch_sizes) {
    within("--batch", batch, 1, 1 << 20);
  }
  for (const std::int64_t threads : options.threads) {
    within("--threads", threads, 1, 1024);
  }
  for (const double replication : options.replications) {
    require(replication >= 1.0 && replication <= 1024.0,
            fmt::format("--replication {}: must be from 1 to 1024", replication));
  }
  for (const std::string& weights : options.weights) {
    require(weights == "bf16" || weights == "int8", fmt::format("--weights {}: must be bf16 or int8", weights));
  }
  for (const std::string& policy : options.policies) {
    require(routing_policy_named(policy).has_value(), fmt::format("--policy {}: not a routing policy", policy));
  }
}

// Figures of one setting. `best` and `median` are shares of the limit.
struct Summary {
  double ms_min = 0.0, ms_median = 0.0, limit_ms = 0.0;
  double best = 0.0, median = 0.0;
  double lambda = 0.0, num_activated = 0.0;
};

std::vector<double> column(const DecodeResult& result, const std::function<double(const DecodeSample&)>& value) {
  std::vector<double> values;
  for (const DecodeSample& sample : result.samples) {
    values.push_back(value(sample));
  }
  return values;
}

// `work` of a sample in what `rate` does per second: bytes, or operations.
Summary summary_of(const DecodeResult& result, const std::function<double(const DecodeSample&)>& work,
                   const std::function<double(const DecodeSample&)>& rate) {
  const auto speeds = column(result, [&](const DecodeSample& s) { return work(s) / s.seconds; });
  const auto limits = column(result, rate);
  const auto seconds = column(result, [](const DecodeSample& s) { return s.seconds; });
  Summary summary;
  summary.ms_min = 1e3 * least_of(seconds);
  summary.ms_median = 1e3 * median_of(seconds);
  summary.limit_ms = 1e3 * median_of(column(result, work)) / median_of(limits);
  summary.best = *std::max_element(speeds.begin(), speeds.end()) / *std::max_element(limits.begin(), limits.end());
  summary.median = median_of(speeds) / median_of(limits);
  summary.lambda = median_of(column(result, [](const DecodeSample& s) { return s.lambda; }));
  summary.num_activated = median_of(column(result, [](const DecodeSample& s) { return s.num_activated; }));
  return summary;
}

Summary summary_of(const DecodeBenchOptions& options, const DecodeResult& result) {
  if (result.setting.prefill) {
    const double flops = flops_of_tokens(options, result.setting.num_rows);
    return summary_of(
        result, [flops](const DecodeSample&) { return flops; }, [](const DecodeSample& s) { return s.flops_per_s; });
  }
  return summary_of(
      result, [](const DecodeSample& s) { return static_cast<double>(s.bytes); },
      [](const DecodeSample& s) { return s.bytes_per_s; });
}

void print_decode(std::FILE* out, const DecodeBenchOptions& options, const std::vector<DecodeResult>& results) {
  fmt::print(out, "\n{:>6}  {:<8}{:>11}  {:<13}{:>8}{:>8}{:>9}{:>10}{:>10}{:>10}{:>7}{:>8}\n", "batch", "weights",
             "replication", "policy", "threads", "lambda", "replicas", "ms", "median", "limit", "share", "median");
  for (const DecodeResult& result : results) {
    if (result.setting.prefill) {
      continue;
    }
    const Summary s = summary_of(options, result);
    fmt::print(out, "{:>6}  {:<8}{:>11}  {:<13}{:>8}{:>8.1f}{:>9.1f}{:>10.3f}{:>10.3f}{:>10.3f}{:>7.2f}{:>8.2f}\n",
               result.setting.num_rows, result.setting.weights, result.setting.replication, result.setting.policy,
               result.setting.num_threads, s.lambda, s.num_activated, s.ms_min, s.ms_median, s.limit_ms, s.best,
               s.median);
  }
}

void print_prefill(std::FILE* out, const DecodeBenchOptions& options, const std::vector<DecodeResult>& results) {
  fmt::print(out, "\nprefill of {} tokens a rank; limit: fused multiply-adds in registers\n", options.prefill_tokens);
  fmt::print(out, "{:<8}{:>11}{:>9}{:>10}{:>10}{:>12}{:>10}{:>10}{:>7}{:>8}\n", "weights", "replication", "threads",
             "ms", "median", "tokens/s", "GFLOP/s", "limit ms", "share", "median");
  for (const DecodeResult& result : results) {
    if (!result.setting.prefill) {
      continue;
    }
    const Summary s = summary_of(options, result);
    const auto num_tokens = static_cast<double>(result.setting.num_rows);
    const double gflops = 1e-9 * flops_of_tokens(options, result.setting.num_rows);
    fmt::print(out, "{:<8}{:>11}{:>9}{:>10.2f}{:>10.2f}{:>12.1f}{:>10.1f}{:>10.2f}{:>7.2f}{:>8.2f}\n",
               result.setting.weights, result.setting.replication, result.setting.num_threads, s.ms_min, s.ms_median,
               1e3 * num_tokens / s.ms_median, 1e3 * gflops / s.ms_median, s.limit_ms, s.best, s.median);
  }
}

json json_of(const DecodeBenchOptions& options, const DecodeResult& result) {
  const Summary s = summary_of(options, result);
  json samples = json::array();
  for (const DecodeSample& sample : result.samples) {
    samples.push_back({{"seconds", sample.seconds},
                       {"bytes", sample.bytes},
                       {"limit_bytes_per_s", sample.bytes_per_s},
                       {"limit_flops_per_s", sample.flops_per_s},
                       {"lambda", sample.lambda},
                       {"activated", sample.num_activated}});
  }
  return {{"phase", result.setting.prefill ? "prefill" : "decode"},
          {"rows", result.setting.num_rows},
          {"weights", result.setting.weights},
          {"replication", result.setting.replication},
          {"policy", result.setting.policy},
          {"threads", result.setting.num_threads},
          {"ms_min", s.ms_min},
          {"ms_median", s.ms_median},
          {"limit_ms_median", s.limit_ms},
          {"share_of_best", s.best},
          {"share_of_medians", s.median},
          {"samples", std::move(samples)}};
}

}  // namespace

void bench_decode(const DecodeBenchOptions& options, Transport& transport, std::FILE* out) {
  agree(transport, [&options] { check(options); });
  const bool speaks = transport.rank() == 0;
  const auto load_before = load_average();
  if (speaks) {
    fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}; kernels {}\n", build_description(), load_before[0],
               load_before[1], load_before[2], name_of(simd_level()));
    fmt::print(out,
               "{}, {} layers, vocabulary {}, context {}, random weights, {} ranks, {} repetitions in turn\n"
               "ms: of a step, least and median; limit: bytes of the busiest rank / its reading speed of {} MiB, just "
               "before\nshare: best step / best reading, median / median\n",
               options.model, options.num_layers, options.vocab, options.context, transport.size(), options.repetitions,
               options.flush_mib);
    std::fflush(out);
  }
  const std::vector<DecodeResult> results = time_decode(options, transport);
  from_rank_0(transport, [&] {
    print_decode(out, options, results);
    if (options.prefill_tokens > 0) {
      print_prefill(out, options, results);
    }
    const auto load_after = load_average();
    fmt::print(out, "\nload average at the end {:.2f} {:.2f} {:.2f}\n", load_after[0], load_after[1], load_after[2]);
    if (!options.json_path.empty()) {
      json settings = json::array();
      for (const DecodeResult& result : results) {
        settings.push_back(json_of(options, result));
      }
      const json document = {{"benchmark", "decode"},
                             {"build", build_description()},
                             {"load_average_before", load_before},
                             {"load_average_after", load_after},
                             {"model", options.model},
                             {"layers", options.num_layers},
                             {"vocab", options.vocab},
                             {"context", options.context},
                             {"ranks", transport.size()},
                             {"simd", name_of(simd_level())},
                             {"flush_mib", options.flush_mib},
                             {"repetitions", options.repetitions},
                             {"settings", std::move(settings)}};
      write_file_atomically(options.json_path, document.dump(1) + "\n");
    }
    return std::string();
  });
}

}  // namespace metro
