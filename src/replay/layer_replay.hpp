// The batches of a replay in one layer over one placement: what replay() does innermost.
#pragma once

#include "replay/replay.hpp"
#include "replay/routing_statistics.hpp"
#include "routing/replica_map.hpp"
#include "routing/step_router.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class LayerReplay {
 public:
  // Keeps references to `trace` and `slot_to_expert` [num_ranks * slots_per_rank].
  LayerReplay(const RoutingTrace& trace, std::int64_t layer, std::span<const std::int32_t> slot_to_expert,
              std::int64_t num_ranks, std::uint64_t seed);

  // Routes all batches by replayed.policy; batch i is draw i, and step i for policies that depend on the step.
  RoutingStatisticsSum route(const ReplayCase& replayed, std::span<const TraceBatch> batches,
                             const ReplayObserver& observe);

 private:
  void load_batch(const TraceBatch& batch);
  // Assignments that do not have the same slot when each rank routes all rows as if they were its own.
  std::int64_t count_differing(StepRouter& router, std::int64_t draw);
  // Active experts that two ranks would serve in different places if each served them in an order of its own.
  std::int64_t count_lock_differing(std::int64_t draw);

  const RoutingTrace& trace_;
  std::int64_t layer_;
  std::span<const std::int32_t> slot_to_expert_;
  ReplicaMap map_;
  ExpertRouter optimal_router_;
  std::uint64_t seed_;

  // Of the batch that is being routed.
  std::vector<std::int32_t> topk_idx_;  // [batch, top_k]
  std::vector<std::int32_t> counts_;    // [num_experts]
  std::vector<std::int32_t> slots_;     // [batch, top_k]
  std::int64_t num_active_ = 0;

  // Scratch.
  std::vector<std::int32_t> expert_to_rank_, other_expert_to_rank_;       // [num_experts]
  std::vector<std::int32_t> as_one_rank_, slots_of_first_, other_slots_;  // [batch], [batch, top_k]
  std::vector<bool> differs_;                                             // [batch, top_k]
};

}  // namespace metro
