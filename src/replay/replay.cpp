#include "replay/replay.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "replay/layer_replay.hpp"
#include "replay/placements.hpp"

#include <fmt/format.h>

namespace metro {

namespace {

struct DrawnBatches {
  std::int64_t batch_size = 0;
  std::vector<TraceBatch> batches;  // [num_draws]
};

std::vector<DrawnBatches> draw_batches(std::span<const RequestRows> requests, const ReplaySettings& settings,
                                       std::int64_t num_ranks) {
  std::vector<DrawnBatches> drawn;
  for (const std::int64_t batch_size : settings.batch_sizes) {
    TraceBatches batches(requests, batch_size, num_ranks, settings.seed);
    drawn.push_back({batch_size, {}});
    for (std::int64_t draw = 0; draw < settings.num_draws; ++draw) {
      drawn.back().batches.push_back(batches.batch());
      batches.advance(settings.stride);
    }
  }
  return drawn;
}

// All policies on one placement and batch size.
std::vector<ReplayResult> replay_batches(const RoutingTrace& trace, const ReplaySettings& settings,
                                         const ReplayCase& common, const Placement& placement,
                                         std::span<const TraceBatch> batches, const ReplayObserver& observe) {
  std::vector<ReplayResult> results;
  for (const RoutingPolicy policy : settings.policies) {
    results.push_back({common, {}, {}});
    results.back().replayed.policy = policy;
  }
  std::vector<RoutingStatisticsSum> overall(results.size());
  for (const std::int64_t layer : settings.layers) {
    LayerReplay layer_replay(trace, layer, placement.layer(layer), placement.num_ranks, settings.seed);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const RoutingStatisticsSum sum = layer_replay.route(results[i].replayed, batches, observe);
      results[i].layers.push_back(sum.statistics());
      overall[i].add(sum);
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].overall = overall[i].statistics();
  }
  return results;
}

}  // namespace

std::vector<RequestRows> require_requests(const RoutingTrace& trace, TraceRows rows, TraceRequests requests) {
  std::vector<RequestRows> found = requests_of(trace, rows, requests);
  if (found.empty()) {
    throw Error(ExitCode::usage,
                fmt::format("the trace has no {} rows in its {} requests", name_of(rows), name_of(requests)));
  }
  return found;
}

std::vector<ReplayResult> replay(const RoutingTrace& trace, const ReplaySettings& settings,
                                 const ReplayObserver& observe) {
  METRO_REQUIRE(settings.num_draws > 0 && settings.stride > 0, "draws and stride");
  const std::vector<RequestRows> plan_on = require_requests(trace, settings.rows, settings.plan_on);
  const std::vector<RequestRows> judge_on = require_requests(trace, settings.rows, settings.judge_on);
  const PlacementSearch search{{settings.batch_sizes, settings.num_plan_steps, settings.seed}, settings.moves_per_slot};
  std::vector<ReplayResult> results;
  for (const std::string& name : settings.placements) {
    if (is_placement_file(name)) {
      require_used(name, settings.rank_counts);
    }
    for (const std::int64_t num_ranks : settings.rank_counts) {
      const std::vector<DrawnBatches> drawn = draw_batches(judge_on, settings, num_ranks);
      for (const Placement& placement :
           placements_named(name, trace, plan_on, num_ranks, settings.replications, search)) {
        ReplayCase replayed;
        replayed.placement = name;
        replayed.replication = static_cast<double>(placement.num_slots()) / static_cast<double>(placement.num_experts);
        replayed.slots_per_rank = placement.slots_per_rank;
        replayed.num_ranks = num_ranks;
        for (const DrawnBatches& draws : drawn) {
          replayed.batch_size = draws.batch_size;
          const auto part = replay_batches(trace, settings, replayed, placement, draws.batches, observe);
          results.insert(results.end(), part.begin(), part.end());
        }
      }
    }
  }
  return results;
}

}  // namespace metro
