// The search of the activation-aware placement in one MoE layer: simulated annealing over slots, on a LambdaTracker.
#pragma once

#include "placement/activation_sample.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace metro {

struct LayerSearchTask {
  const ActivationSample* sample;
  std::int64_t moe_layer;
  std::int64_t num_ranks;
  std::int64_t num_nodes;  // rank r lies on node r * num_nodes / num_ranks
  std::uint64_t seed;
  std::int64_t num_moves;
};

struct LayerSearchResult {
  std::vector<std::int32_t> slots;  // [num_ranks * slots_per_rank], every expert at least once
  std::int64_t total_lambda = 0;    // over the steps of the sample
};

// Looks for slots with the least sum over steps of (least lambda), counting `same_node_cost` expected lambda for every
// replica whose node has the expert already. start [num_ranks * slots_per_rank] is full and holds every expert; what
// comes back costs no more than it. Pure and, for a seed, deterministic. moves_done(n): n more moves were tried; it is
// called num_moves in all. Throws Error(usage) for more than 1024 ranks.
LayerSearchResult search_layer(const LayerSearchTask& task, std::vector<std::int32_t> start,
                               const std::function<void(std::int64_t)>& moves_done);

// Two replicas of an expert on one node leave fewer tokens a host on their own node. It is worth this much of an
// expert's read per step to avoid that.
constexpr double same_node_cost = 0.001;

}  // namespace metro
