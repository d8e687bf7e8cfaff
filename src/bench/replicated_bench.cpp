// The options of the benchmark, its tables and its JSON file.
#include "bench/replicated_bench.hpp"

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "bench/load_average.hpp"
#include "bench/model_shapes.hpp"
#include "routing/policy.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

void require(bool is_fine, const std::string& problem) {
  if (!is_fine) {
    throw Error(ExitCode::usage, "bench replicated: " + one_line(problem));
  }
}

void check(const ReplicatedBenchOptions& options) {
  const auto within = [](const char* name, auto value, auto least, auto most) {
    require(value >= least && value <= most, fmt::format("{} {}: must be from {} to {}", name, value, least, most));
  };
  model_shape(options.model, "bench replicated: --model");
  require(!options.ranks.empty() && !options.batch_sizes.empty() && !options.policies.empty(), "nothing to measure");
  for (const std::int64_t ranks : options.ranks) {
    within("--ranks", ranks, 2, 1 << 14);
  }
  require(std::is_sorted(options.ranks.begin(), options.ranks.end(), std::less_equal<>()),
          "--ranks: must be ascending, to see how costs grow");
  for (const std::int64_t batch : options.batch_sizes) {
    within("--batch", batch, 1, 4096);
  }
  for (const std::string& policy : options.policies) {
    require(routing_policy_named(policy).has_value(), fmt::format("--policies {}: no routing policy", policy));
  }
  within("--replication", options.replication, 1.0, 64.0);
  within("--ranks-per-node", options.ranks_per_node, 1, 1 << 14);
  within("--repetitions", options.repetitions, 7, 10000);
}

void print_head(std::FILE* out, const ReplicatedBenchOptions& options) {
  const auto loads = load_average();
  const ModelShape& shape = model_shape(options.model, "bench replicated: --model");
  fmt::print(out, "{}\nload average {:.2f} {:.2f} {:.2f}; {} repetitions\n", build_description(), loads[0], loads[1],
             loads[2], options.repetitions);
  fmt::print(out,
             "one rank of a pretended job, {} ranks a node; top-{} of {} experts, {} replicas per expert at least\n"
             "us of a rank on one core, least and median; nothing is sent and no expert of another rank computed\n"
             "x: from one number of ranks to the next a cost grows like ranks^x: 1 is linear, 2 quadratic\n",
             options.ranks_per_node, shape.top_k, shape.num_experts, options.replication);
}

constexpr std::size_t name_width = 50;

template <class Value>
void print_growth(std::FILE* out, const std::vector<ReplicatedCost>& costs, Value value) {
  for (std::size_t i = 1; i < costs.size(); ++i) {
    fmt::print(out, "{:>7.2f}",
               growth_exponent(value(costs[i - 1]), costs[i - 1].num_ranks, value(costs[i]), costs[i].num_ranks));
  }
  fmt::print(out, "\n");
}

// costs: of one setting with all numbers of ranks.
void print_costs(std::FILE* out, const std::string& title, const std::vector<ReplicatedCost>& costs) {
  fmt::print(out, "\n{:<{}}", title, name_width);
  for (const ReplicatedCost& cost : costs) {
    fmt::print(out, "{:>20}", fmt::format("{} ranks", cost.num_ranks));
  }
  for (std::size_t i = 1; i < costs.size(); ++i) {
    fmt::print(out, "{:>7}", "x");
  }
  fmt::print(out, "\n");
  for (std::size_t part = 0; part < costs.front().times.size(); ++part) {
    fmt::print(out, "  {:<{}}", costs.front().times[part].name, name_width - 2);
    for (const ReplicatedCost& cost : costs) {
      fmt::print(out, "{:>10.1f}{:>10.1f}", cost.times[part].us_min, cost.times[part].us_median);
    }
    print_growth(out, costs, [part](const ReplicatedCost& cost) { return cost.times[part].us_min; });
  }
  for (std::size_t part = 0; part < costs.front().memory.size(); ++part) {
    fmt::print(out, "  {:<{}}", costs.front().memory[part].name, name_width - 2);
    for (const ReplicatedCost& cost : costs) {
      fmt::print(out, "{:>16.1f} KiB", static_cast<double>(cost.memory[part].num_bytes) / 1024.0);
    }
    print_growth(out, costs,
                 [part](const ReplicatedCost& cost) { return static_cast<double>(cost.memory[part].num_bytes); });
  }
}

json json_of(const ReplicatedCost& cost) {
  json times = json::array();
  for (const ReplicatedTime& time : cost.times) {
    times.push_back({{"part", time.name}, {"us_min", time.us_min}, {"us_median", time.us_median}});
  }
  json memory = json::array();
  for (const ReplicatedBytes& part : cost.memory) {
    memory.push_back({{"part", part.name}, {"bytes", part.num_bytes}});
  }
  return {{"ranks", cost.num_ranks}, {"times", std::move(times)}, {"memory", std::move(memory)}};
}

json json_of(const std::vector<ReplicatedCost>& costs) {
  json array = json::array();
  for (const ReplicatedCost& cost : costs) {
    array.push_back(json_of(cost));
  }
  return array;
}

}  // namespace

double growth_exponent(double cost, std::int64_t num_ranks, double next_cost, std::int64_t next_num_ranks) {
  if (cost <= 0.0 || next_cost <= 0.0) {
    return 0.0;
  }
  return std::log(next_cost / cost) / std::log(static_cast<double>(next_num_ranks) / static_cast<double>(num_ranks));
}

void bench_replicated(const ReplicatedBenchOptions& options, std::FILE* out) {
  check(options);
  if (!options.json_path.empty()) {
    require_room_for_output(options.json_path, true);  // before the measurement, which would be lost otherwise
  }
  print_head(out, options);
  const auto load_before = load_average();
  std::vector<ReplicatedCost> start;
  for (const std::int64_t num_ranks : options.ranks) {
    start.push_back(cost_of_start(options, num_ranks));
  }
  print_costs(out, "start", start);
  json steps = json::array();
  for (const std::string& policy : options.policies) {
    for (const std::int64_t batch : options.batch_sizes) {
      std::vector<ReplicatedCost> costs;
      for (const std::int64_t num_ranks : options.ranks) {
        costs.push_back(cost_of_steps(options, num_ranks, batch, policy));
      }
      print_costs(out, fmt::format("step, {} sequences per rank, {}", batch, policy), costs);
      std::fflush(out);
      steps.push_back({{"policy", policy}, {"batch", batch}, {"costs", json_of(costs)}});
    }
  }
  const auto load_after = load_average();
  fmt::print(out, "\nload average at the end {:.2f} {:.2f} {:.2f}\n", load_after[0], load_after[1], load_after[2]);
  if (!options.json_path.empty()) {
    const json document = {{"benchmark", "replicated"},
                           {"build", build_description()},
                           {"load_average_before", load_before},
                           {"load_average_after", load_after},
                           {"model", options.model},
                           {"replication", options.replication},
                           {"ranks_per_node", options.ranks_per_node},
                           {"repetitions", options.repetitions},
                           {"start", json_of(start)},
                           {"steps", std::move(steps)}};
    write_file_atomically(options.json_path, document.dump(1) + "\n");
  }
}

}  // namespace metro
