// `experts.placement = "activation-aware"` of a deck: a placement for this job from a routing trace.
#pragma once

#include "placement/placement.hpp"

#include <cstdint>
#include <string>

namespace metro {

// What the placement is for.
struct PlacementNeed {
  std::int64_t num_layers = 0;  // MoE layers
  std::int64_t num_experts = 0;
  std::int64_t num_groups = 1;
  std::int64_t num_nodes = 1;
  std::int64_t num_ranks = 0;
  std::int64_t slots_per_rank = 0;
  std::int64_t most_sequences = 0;  // of all ranks: batches of this, a half and a quarter are planned for
  std::int64_t num_threads = 1;
};

// Reads the trace and searches briefly, because the other ranks wait; `metro plan` searches for longer. Throws
// Error(input) for a trace that cannot be read, Error(usage) naming it if it is of another model.
Placement place_from_trace(const std::string& trace_path, const PlacementNeed& need);

}  // namespace metro
