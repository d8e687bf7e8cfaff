// Routing of a decode step as one rank sees it: from the experts of all rows to who serves what. Every rank does the
// same from the same ids, so nobody has to be told.
#pragma once

#include "base/digest.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/step_observer.hpp"
#include "model/model_spec.hpp"
#include "routing/replica_map.hpp"
#include "routing/step_router.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// One assignment that this rank serves.
struct ServedRow {
  std::int64_t row = 0;  // among the rows of all ranks
  std::int32_t expert = 0;
};

class DecodeRouting {
 public:
  // `maps` [num_moe_layers] must outlive it. For rank `rank` of num_ranks; max_rows: of one rank.
  DecodeRouting(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, const RoutingSettings& routing,
                std::int64_t rank, std::int64_t num_ranks, std::int64_t max_rows);

  // To be called when `maps` have changed.
  void placement_changed();
  // Routes by other settings from the next step on.
  void switch_routing(const RoutingSettings& routing);

  // The experts of all rows of a step, in rank order, to be filled before route(). [rows of all ranks * top_k]
  std::span<std::int32_t> expert_ids(const RowBatch& batch);
  void route(std::int64_t moe_layer, const RowBatch& batch);

  // Of the last route(). Equal digests mean equal routing.
  Digest digest() const;
  // Serving rank of each own assignment, in row order.
  std::span<const std::int32_t> owned_to_rank() const { return owned_to_rank_; }
  // Own assignments by serving rank; assignments that this rank serves by owner. [num_ranks]
  std::span<const std::int64_t> owned_by_rank() const { return owned_by_rank_; }
  std::span<const std::int64_t> served_of_rank() const { return served_of_rank_; }
  // What this rank serves of `owner` in a round, in row order.
  std::span<const ServedRow> served_of(std::int64_t owner, std::int64_t round, std::int64_t num_rounds) const;
  // Assignments of the rank that serves most.
  std::int64_t most_served() const;

  // Memory held for the rows of all ranks, and by the routers of all layers.
  std::int64_t num_row_bytes() const;
  std::int64_t num_router_bytes() const;

  // Tells what `moe_layer` activated.
  void observe(std::int64_t moe_layer, StepObserver& observer);

 private:
  void share_out(const RowBatch& batch);

  std::int64_t num_experts_, top_k_;
  const std::vector<ReplicaMap>* maps_;
  RoutingPolicy policy_ = RoutingPolicy::exact;
  StepRouterOptions options_;
  std::int64_t rank_;
  std::vector<StepRouter> routers_;               // [num_moe_layers]
  std::vector<std::int32_t> expert_ids_;          // [rows of all ranks * top_k]
  std::vector<std::int32_t> slots_;               // likewise
  std::vector<std::int32_t> assignment_to_rank_;  // likewise
  std::vector<std::int32_t> row_to_rank_;         // [rows of all ranks] whose row it is
  std::span<const std::int32_t> owned_to_rank_;   // part of assignment_to_rank_
  std::vector<std::int64_t> served_by_rank_;      // [num_ranks] assignments that each rank serves
  std::vector<std::int64_t> served_of_rank_;      // [num_ranks]
  std::vector<std::int64_t> served_begin_;        // [num_ranks] of each owner in served_
  std::vector<std::int64_t> owned_by_rank_;       // [num_ranks]
  std::vector<ServedRow> served_;                 // in row order, hence by owner
  std::vector<std::int32_t> counts_;              // [num_experts] scratch of observe()
  std::vector<std::int32_t> activated_;           // [num_ranks] likewise
};

}  // namespace metro
