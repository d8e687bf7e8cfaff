// Times the policies in one setting.
#include "base/error.hpp"
#include "base/integers.hpp"
#include "bench/route_bench.hpp"
#include "kernels/routing.hpp"
#include "placement/placement.hpp"
#include "routing/step_router.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace metro {

namespace {

struct Batch {
  std::vector<std::int32_t> expert_ids;
  std::vector<std::int32_t> row_to_rank;  // rows dealt out to the ranks evenly
  std::vector<std::int32_t> counts;       // [num_experts]
};

std::vector<Batch> prepared(const std::vector<std::vector<std::int32_t>>& ids_of_batches, std::int64_t top_k,
                            const RouteBenchOptions::Shape& shape) {
  std::vector<Batch> batches;
  for (const std::vector<std::int32_t>& expert_ids : ids_of_batches) {
    Batch batch{expert_ids, {}, std::vector<std::int32_t>(at(shape.num_experts), 0)};
    const std::int64_t num_rows = std::ssize(expert_ids) / top_k;
    for (std::int64_t row = 0; row < num_rows; ++row) {
      batch.row_to_rank.push_back(static_cast<std::int32_t>(row * shape.num_ranks / num_rows));
    }
    for (const std::int32_t expert : expert_ids) {
      ++batch.counts[at(expert)];
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

// One thing to time: all batches of a setting, once.
struct Contestant {
  std::function<void()> run;
  std::vector<double> us_per_layer;  // of every repetition

  double fastest() const { return *std::min_element(us_per_layer.begin(), us_per_layer.end()); }
  double median() const {
    std::vector<double> sorted = us_per_layer;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

void time_in_turn(std::vector<Contestant>& contestants, std::int64_t repetitions, std::size_t num_layers) {
  using Clock = std::chrono::steady_clock;
  for (Contestant& contestant : contestants) {
    contestant.run();  // warm up
  }
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (Contestant& contestant : contestants) {
      const Clock::time_point begin = Clock::now();
      contestant.run();
      const std::chrono::duration<double, std::micro> elapsed = Clock::now() - begin;
      contestant.us_per_layer.push_back(elapsed.count() / static_cast<double>(num_layers));
    }
  }
}

// A policy, or `exact` with the preference for the own node.
struct Entry {
  std::string name;
  RoutingPolicy policy;
  StepRouter router;
  std::int64_t sum_of_lambdas = 0;
};

std::vector<Entry> entries_for(const RouteBenchOptions& options, const ReplicaMap& map) {
  const std::vector<std::int32_t> nodes = nodes_of_size(map.num_ranks(), options.ranks_per_node);
  std::vector<Entry> entries;
  for (const RoutingPolicy policy : routing_policies()) {
    const bool uses_nodes = policy == RoutingPolicy::static_choice || policy == RoutingPolicy::local;
    entries.push_back({std::string(name_of(policy)), policy,
                       StepRouter(policy, map, {.rank_to_node = uses_nodes ? nodes : std::vector<std::int32_t>{}})});
  }
  if (nodes.back() > 0) {
    entries.push_back({"exact, nodes", RoutingPolicy::exact,
                       StepRouter(RoutingPolicy::exact, map, {.rank_to_node = nodes, .prefer_own_node = true})});
  }
  return entries;
}

// Routes every batch from ids to slots.
Contestant whole_steps(Entry& entry, const std::vector<Batch>& batches, std::int64_t top_k) {
  std::size_t most = 0;
  for (const Batch& batch : batches) {
    most = std::max(most, batch.expert_ids.size());
  }
  return {[&entry, &batches, top_k, slots = std::vector<std::int32_t>(most)]() mutable {
            entry.sum_of_lambdas = 0;
            for (const Batch& batch : batches) {
              entry.router.route(batch.expert_ids, top_k, batch.row_to_rank, 0, 0,
                                 std::span(slots).first(batch.expert_ids.size()));
              entry.sum_of_lambdas += entry.router.lambda();
            }
          },
          {}};
}

// The batches where kernels read them.
struct DeviceBatches {
  std::vector<Buffer<std::int32_t>> expert_ids;  // of each batch
  std::vector<Buffer<std::int32_t>> row_begin;   // [num_ranks + 1] of each batch
  std::vector<std::int64_t> num_rows;
  std::int64_t most_assignments = 0;
};

DeviceBatches on_device(const std::vector<Batch>& batches, std::int64_t num_ranks) {
  DeviceBatches device;
  for (const Batch& batch : batches) {
    std::vector<std::int32_t> row_begin(at(num_ranks + 1), 0);
    for (const std::int32_t rank : batch.row_to_rank) {
      ++row_begin[at(rank + 1)];
    }
    std::partial_sum(row_begin.begin(), row_begin.end(), row_begin.begin());
    const auto copied = [](const std::vector<std::int32_t>& values) {
      Buffer<std::int32_t> buffer("bench batch", std::ssize(values));
      copy_from_host(buffer.data(), std::span(values));
      return buffer;
    };
    device.expert_ids.push_back(copied(batch.expert_ids));
    device.row_begin.push_back(copied(row_begin));
    device.num_rows.push_back(std::ssize(batch.row_to_rank));
    device.most_assignments = std::max(device.most_assignments, std::ssize(batch.expert_ids));
  }
  return device;
}

// Routes every batch by the kernel that also makes the work lists of rank 0.
Contestant by_kernel(const Placement& placement, const std::vector<Batch>& batches, std::int64_t top_k,
                     std::int64_t& sum_of_lambdas) {
  struct State {
    DeviceBatches batches;
    RoutingTables tables;
    RoutingStep step;
  };
  DeviceBatches device = on_device(batches, placement.num_ranks);
  const RoutingStep::Sizes sizes{placement.num_experts, placement.num_ranks, placement.slots_per_rank,
                                 device.most_assignments};
  const auto state = std::make_shared<State>(
      State{std::move(device), RoutingTables(placement.layer(0), placement.num_experts, placement.num_ranks, 0),
            RoutingStep(StepPolicy::exact, sizes)});
  return {[state, top_k, &sum_of_lambdas] {
            sum_of_lambdas = 0;
            for (std::size_t i = 0; i < state->batches.num_rows.size(); ++i) {
              state->step.route(state->tables, {state->batches.expert_ids[i].data(), state->batches.num_rows[i], top_k,
                                                state->batches.row_begin[i].data()});
              std::int32_t lambda = 0;
              copy_to_host(std::span(&lambda, 1), static_cast<const std::int32_t*>(state->step.result().lambda));
              sum_of_lambdas += lambda;
            }
          },
          {}};
}

// Routes every batch from rows per expert to ranks, for the policies that decide from those.
Contestant from_counts(RoutingPolicy policy, const ReplicaMap& map, const std::vector<Batch>& batches) {
  if (policy == RoutingPolicy::makespan) {
    return {[&batches, router = MakespanRouter({}, map)]() mutable {
              for (const Batch& batch : batches) {
                router.route(batch.counts);
              }
            },
            {}};
  }
  return {[&batches, router = ExpertRouter(policy, map),
           expert_to_rank = std::vector<std::int32_t>(at(map.num_experts()))]() mutable {
            for (const Batch& batch : batches) {
              router.route(batch.counts, expert_to_rank);
            }
          },
          {}};
}

}  // namespace

RouteSetting bench_routing(const RouteBenchOptions& options, const RouteBenchOptions::Shape& shape, double replication,
                           const std::vector<std::vector<std::int32_t>>& ids_of_batches, std::int64_t top_k,
                           const std::vector<std::int64_t>& loads) {
  METRO_REQUIRE(!ids_of_batches.empty() && options.repetitions >= 1, "nothing to time");
  RouteSetting setting{shape.num_experts, shape.num_ranks, 0, replication, 0.0, {}};
  setting.slots_per_rank = slots_for_replication(shape.num_experts, shape.num_ranks, replication);
  const Placement placement = place_eplb(loads, 1, shape.num_experts, 1, 1, shape.num_ranks, setting.slots_per_rank);
  const ReplicaMap map(placement.layer(0), shape.num_experts, shape.num_ranks);
  const std::vector<Batch> batches = prepared(ids_of_batches, top_k, shape);
  for (const Batch& batch : batches) {
    setting.num_assignments += static_cast<double>(batch.expert_ids.size()) / static_cast<double>(batches.size());
  }

  std::vector<Entry> entries = entries_for(options, map);
  std::vector<Contestant> contestants;  // whole steps of all entries, then counts of those that decide from them
  for (Entry& entry : entries) {
    contestants.push_back(whole_steps(entry, batches, top_k));
  }
  std::vector<std::size_t> timed_alone;
  for (std::size_t idx = 0; idx < routing_policies().size(); ++idx) {
    if (needs_counts_of_all_ranks(entries[idx].policy)) {
      timed_alone.push_back(idx);
      contestants.push_back(from_counts(entries[idx].policy, map, batches));
    }
  }
  std::int64_t kernel_lambdas = 0;
  contestants.push_back(by_kernel(placement, batches, top_k, kernel_lambdas));
  time_in_turn(contestants, options.repetitions, batches.size());

  for (std::size_t idx = 0; idx < entries.size(); ++idx) {
    setting.timings.push_back({entries[idx].name, 0.0, 0.0, contestants[idx].fastest(), contestants[idx].median(),
                               static_cast<double>(entries[idx].sum_of_lambdas) / static_cast<double>(batches.size())});
  }
  for (std::size_t i = 0; i < timed_alone.size(); ++i) {
    setting.timings[timed_alone[i]].counts_us_min = contestants[entries.size() + i].fastest();
    setting.timings[timed_alone[i]].counts_us_median = contestants[entries.size() + i].median();
  }
  const Contestant& kernel = contestants.back();
  setting.timings.push_back({"exact, kernel", 0.0, 0.0, kernel.fastest(), kernel.median(),
                             static_cast<double>(kernel_lambdas) / static_cast<double>(batches.size())});
  return setting;
}

}  // namespace metro
