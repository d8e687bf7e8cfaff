// How the decoder routes: equal on all ranks.
#pragma once

#include "routing/step_router.hpp"

#include <cstdint>
#include <vector>

namespace metro {

struct RoutingSettings {
  RoutingPolicy decode = RoutingPolicy::exact;
  RoutingPolicy prefill = RoutingPolicy::even;
  std::uint64_t seed = 0;                       // of vllm-random
  MakespanCosts costs = {};                     // of makespan
  std::vector<std::int32_t> rank_to_node = {};  // [num_ranks]; empty: all ranks on one node
  bool prefer_own_node = false;                 // of exact

  StepRouterOptions options(RowNumbering numbering) const {
    return {numbering, seed, costs, rank_to_node, prefer_own_node};
  }
};

}  // namespace metro
