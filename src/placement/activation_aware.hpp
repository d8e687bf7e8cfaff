// The activation-aware placement: replicas and slots that minimise the expected least lambda over a sample of steps,
// with as many slots as EPLB has. Method, measurements and limits: docs/placement.md.
#pragma once

#include "placement/activation_sample.hpp"
#include "placement/placement.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace metro {

struct ActivationAwareOptions {
  std::int64_t num_groups = 1;  // of the EPLB placement that the search starts from
  std::int64_t num_nodes = 1;   // rank r lies on node r * num_nodes / num_ranks
  // Layers may differ in their slots per rank, all layers together have as many as without.
  bool spread_over_layers = false;
  std::uint64_t seed = 0;
  std::int64_t moves_per_slot = 1000;  // length of the search in a layer
  std::int64_t num_threads = 1;        // layers searched at a time; the result does not depend on it
};

// done and total count moves of the search. Called from any of the threads, one at a time.
using SearchProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// loads [num_layers, num_experts] as place_eplb takes them; empty: how often an expert was active in the sample.
// The expected lambda of the result over the sample, summed over layers, is at most that of place_eplb with the same
// arguments, but for layer_search.hpp's same_node_cost where there are several nodes. With spread_over_layers the
// result's slots_per_rank is the largest of any layer; the slots that a layer does not have are empty, the last ones of
// each rank. Otherwise all slots are filled. Throws Error(usage) as place_eplb does, and for more than 1024 ranks.
Placement place_activation_aware(const ActivationSample& sample, std::span<const std::int64_t> loads,
                                 std::int64_t num_ranks, std::int64_t slots_per_rank,
                                 const ActivationAwareOptions& options, const SearchProgress& progress = {});

}  // namespace metro
