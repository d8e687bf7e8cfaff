// The settings of the benchmark, its table and its JSON file.
#include "bench/route_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"
#include "bench/counts_file.hpp"
#include "bench/load_average.hpp"
#include "bench/synthetic_batches.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace metro {

namespace {

using nlohmann::json;

constexpr std::int64_t most_experts = 1 << 16;
constexpr std::int64_t most_ranks = 1 << 14;
constexpr std::int64_t most_tokens = 1 << 20;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench route: " + problem);
  }
}

void check(const RouteBenchOptions& options) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
    require(value >= least && value <= most, fmt::format("{} {}: must be from {} to {}", name, value, least, most));
  };
  within("--repetitions", options.repetitions, 7, 100000);
  within("--batches", options.num_batches, 1, 100000);
  within("--ranks-per-node", options.ranks_per_node, 1, most_ranks);
  for (const std::int64_t tokens : options.batch_sizes) {
    within("--batch", tokens, 1, most_tokens);
  }
  for (const RouteBenchOptions::Shape& shape : options.shapes) {
    // Batches of a file have rows per expert only.
    require(!options.counts_path.empty() || (options.top_k >= 1 && options.top_k <= shape.num_experts),
            fmt::format("--top-k {}: must be from 1 to the {} experts of --shape", options.top_k, shape.num_experts));
  }
  require(options.skew >= 0.0 && options.skew <= 10.0, fmt::format("--skew {}: must be from 0 to 10", options.skew));
}

void print_head(std::FILE* out, const RouteBenchOptions& options) {
  const auto loads = load_average();
  fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}; {} repetitions of {} batches, policies in turn\n",
             build_description(), loads[0], loads[1], loads[2], options.repetitions, options.num_batches);
  fmt::print(out,
             "microseconds per layer, least and median; ratio = least / least of metro\n"
             "counts: from rows per expert to ranks; step: from expert ids to the slot of every assignment\n"
             "exact, kernel: the kernel for devices, which also makes the work lists of a rank; here on the host\n");
}

void print_setting(std::FILE* out, const RouteSetting& setting) {
  fmt::print(out, "\n{} experts, {} ranks, {} replicas an expert ({} slots a rank), {:.0f} assignments a batch\n",
             setting.num_experts, setting.num_ranks, setting.replication, setting.slots_per_rank,
             setting.num_assignments);
  fmt::print(out, "  {:<13}{:>10}{:>10}{:>8}{:>11}{:>10}{:>8}{:>9}\n", "policy", "counts", "median", "ratio", "step",
             "median", "ratio", "lambda");
  const RouteTiming& greedy = setting.timings.front();
  for (const RouteTiming& timing : setting.timings) {
    const std::string counts = timing.counts_us_min > 0.0
                                   ? fmt::format("{:>10.2f}{:>10.2f}{:>8.2f}", timing.counts_us_min,
                                                 timing.counts_us_median, timing.counts_us_min / greedy.counts_us_min)
                                   : fmt::format("{:>10}{:>10}{:>8}", "-", "-", "-");
    fmt::print(out, "  {:<13}{}{:>11.2f}{:>10.2f}{:>8.2f}{:>9.2f}\n", timing.policy, counts, timing.step_us_min,
               timing.step_us_median, timing.step_us_min / greedy.step_us_min, timing.lambda);
  }
}

json json_of(const RouteSetting& setting) {
  json policies = json::array();
  for (const RouteTiming& timing : setting.timings) {
    json entry = {{"policy", timing.policy},
                  {"step_us_min", timing.step_us_min},
                  {"step_us_median", timing.step_us_median},
                  {"lambda_mean", timing.lambda}};
    if (timing.counts_us_min > 0.0) {
      entry["counts_us_min"] = timing.counts_us_min;
      entry["counts_us_median"] = timing.counts_us_median;
    }
    policies.push_back(std::move(entry));
  }
  return {{"num_experts", setting.num_experts},          {"num_ranks", setting.num_ranks},
          {"slots_per_rank", setting.slots_per_rank},    {"replication", setting.replication},
          {"assignments_mean", setting.num_assignments}, {"policies", std::move(policies)}};
}

// Calls `done` with the result of every setting.
template <class Done>
void run_synthetic(const RouteBenchOptions& options, Done done) {
  for (const RouteBenchOptions::Shape& shape : options.shapes) {
    for (const std::int64_t num_tokens : options.batch_sizes) {
      const SyntheticBatches source{shape.num_experts, num_tokens, options.top_k, options.skew, 1};
      std::vector<std::vector<std::int32_t>> batches;
      for (std::int64_t number = 0; number < options.num_batches; ++number) {
        batches.push_back(source.batch(number));
      }
      for (const double replication : options.replications) {
        done(bench_routing(options, shape, replication, batches, options.top_k, source.loads()));
      }
    }
  }
}

// The batches of the file, on placements planned with their sum.
template <class Done>
void run_counts(const RouteBenchOptions& options, Done done) {
  const CountsFile file = read_counts(options.counts_path);
  std::vector<std::int64_t> loads(at(file.num_experts), 0);
  std::vector<std::vector<std::int32_t>> batches;
  for (const std::vector<std::int32_t>& counts : file.batches) {
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      loads[expert] += counts[expert];
    }
    batches.push_back(ids_with_counts(counts, batches.size()));
  }
  bool is_any = false;
  for (const RouteBenchOptions::Shape& shape : options.shapes) {
    if (shape.num_experts != file.num_experts) {
      continue;
    }
    is_any = true;
    for (const double replication : options.replications) {
      done(bench_routing(options, shape, replication, batches, 1, loads));
    }
  }
  require(is_any, fmt::format("--counts {} has {} experts: give a --shape {}/RANKS", options.counts_path,
                              file.num_experts, file.num_experts));
}

}  // namespace

RouteBenchOptions::Shape parse_shape(const std::string& text) {
  RouteBenchOptions::Shape shape{};
  const char* const end = text.data() + text.size();
  const auto experts = std::from_chars(text.data(), end, shape.num_experts);
  const bool has_slash = experts.ec == std::errc() && experts.ptr != end && *experts.ptr == '/';
  const auto ranks = has_slash ? std::from_chars(experts.ptr + 1, end, shape.num_ranks) : experts;
  require(has_slash && ranks.ec == std::errc() && ranks.ptr == end && shape.num_experts >= 1 &&
              shape.num_experts <= most_experts && shape.num_ranks >= 1 && shape.num_ranks <= most_ranks,
          one_line(fmt::format("--shape {}: must be EXPERTS/RANKS, such as 128/8, at most {}/{}", text, most_experts,
                               most_ranks)));
  return shape;
}

void bench_route(const RouteBenchOptions& options, std::FILE* out) {
  check(options);
  if (!options.json_path.empty()) {
    require_room_for_output(options.json_path, true);  // before the measurement, which would be lost otherwise
  }
  print_head(out, options);
  json settings = json::array();
  const auto load_before = load_average();
  const auto done = [&](const RouteSetting& setting) {
    print_setting(out, setting);
    settings.push_back(json_of(setting));
  };
  if (options.counts_path.empty()) {
    run_synthetic(options, done);
  } else {
    run_counts(options, done);
  }
  const auto load_after = load_average();
  fmt::print(out, "\nload average at the end {:.2f} {:.2f} {:.2f}\n", load_after[0], load_after[1], load_after[2]);
  if (!options.json_path.empty()) {
    const json document = {{"benchmark", "route"},
                           {"build", build_description()},
                           {"load_average_before", load_before},
                           {"load_average_after", load_after},
                           {"repetitions", options.repetitions},
                           {"batches", options.num_batches},
                           {"source", options.counts_path.empty() ? "synthetic" : options.counts_path},
                           {"top_k", options.top_k},
                           {"skew", options.skew},
                           {"settings", std::move(settings)}};
    write_file_atomically(options.json_path, document.dump(1) + "\n");
  }
}

}  // namespace metro
