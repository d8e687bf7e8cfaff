#include "replay/placements.hpp"

#include "base/error.hpp"
#include "placement/activation_aware.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace metro {

bool is_placement_file(const std::string& name) {
  return name != "trivial" && name != "eplb" && name != "activation-aware";
}

std::vector<Placement> placements_named(const std::string& name, const RoutingTrace& trace,
                                        std::span<const RequestRows> plan_on, std::int64_t num_ranks,
                                        std::span<const double> replications, const PlacementSearch& search) {
  const std::int64_t num_layers = trace.model.num_layers();
  const std::int64_t num_experts = trace.model.num_experts;
  if (is_placement_file(name)) {
    Placement placement = read_placement(name);
    if (placement.num_ranks != num_ranks) {
      return {};
    }
    check_placement(placement, num_layers, num_experts, num_ranks, name);
    return {std::move(placement)};
  }
  const std::vector<std::int64_t> loads = name == "trivial" ? std::vector<std::int64_t>() : loads_of(trace, plan_on);
  const auto make = [&](std::int64_t slots_per_rank) {
    if (name == "trivial") {
      return place_trivial(num_layers, num_experts, num_ranks, slots_per_rank);
    }
    if (name == "eplb") {
      return place_eplb(loads, num_layers, num_experts, 1, 1, num_ranks, slots_per_rank);
    }
    const ActivationSample sample = sample_of(trace, plan_on, search.sample);
    return place_activation_aware(sample, loads, num_ranks, slots_per_rank,
                                  {.seed = search.sample.seed, .moves_per_slot = search.moves_per_slot});
  };
  std::vector<Placement> placements;
  for (const double replication : replications) {
    const std::int64_t slots_per_rank = slots_for_replication(num_experts, num_ranks, replication);
    if (std::any_of(placements.begin(), placements.end(),
                    [&](const Placement& earlier) { return earlier.slots_per_rank == slots_per_rank; })) {
      continue;
    }
    placements.push_back(make(slots_per_rank));
  }
  return placements;
}

void require_used(const std::string& file, std::span<const std::int64_t> rank_counts) {
  const std::int64_t num_ranks = read_placement(file).num_ranks;
  if (std::find(rank_counts.begin(), rank_counts.end(), num_ranks) == rank_counts.end()) {
    throw Error(ExitCode::usage, fmt::format("{} is a placement for {} ranks; --ranks names {}", file, num_ranks,
                                             fmt::join(rank_counts, ", ")));
  }
}

}  // namespace metro
