// Times the policies in one setting.
#include "base/error.hpp"
#include "base/integers.hpp"
#include "bench/route_bench.hpp"
#include "placement/placement.hpp"
#include "routing/step_router.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
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
  time_in_turn(contestants, options.repetitions, batches.size());

  for (std::size_t idx = 0; idx < entries.size(); ++idx) {
    setting.timings.push_back({entries[idx].name, 0.0, 0.0, contestants[idx].fastest(), contestants[idx].median(),
                               static_cast<double>(entries[idx].sum_of_lambdas) / static_cast<double>(batches.size())});
  }
  for (std::size_t i = 0; i < timed_alone.size(); ++i) {
    setting.timings[timed_alone[i]].counts_us_min = contestants[entries.size() + i].fastest();
    setting.timings[timed_alone[i]].counts_us_median = contestants[entries.size() + i].median();
  }
  return setting;
}

}  // namespace metro
