// From the router's choices to work, in decode: all ranks gather all rows and ids and route them alike, so nothing else
// has to be exchanged before the experts.
#pragma once

#include "base/digest.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/own_rows.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/step_observer.hpp"
#include "kernels/buffer.hpp"
#include "model/model_spec.hpp"
#include "routing/replica_map.hpp"
#include "routing/step_router.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class DecodeDispatch {
 public:
  // `maps` [num_moe_layers] and what comes by reference must outlive it. max_rows: of one rank in a decode step.
  DecodeDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, const RoutingSettings& routing,
                 Transport& transport, std::int64_t max_rows, PhaseClock& clock);

  // Collective. Gathers, routes and has `service` serve and return everything. Writes owned_to_rank [num_rows * top_k].
  void run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
           std::span<std::int32_t> owned_to_rank, StepObserver* observer);

  // To be called when `maps` have changed; routes by them from the next step on.
  void placement_changed();

  std::int64_t num_bytes() const { return send_.num_bytes() + gathered_.num_bytes(); }
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows);

 private:
  void gather(const RowBatch& batch, const OwnRows& own);
  void route(std::int64_t moe_layer, const RowBatch& batch);
  void share_out(const RowBatch& batch, std::span<std::int32_t> owned_to_rank);
  Digest routing_digest() const;
  void observe(std::int64_t moe_layer, StepObserver& observer);

  const ModelSpec* spec_;
  const std::vector<ReplicaMap>* maps_;
  RoutingPolicy policy_;
  StepRouterOptions options_;
  Transport* transport_;
  PhaseClock* clock_;
  std::vector<StepRouter> routers_;               // [num_moe_layers]
  std::int64_t record_floats_;                    // a gathered row: H floats, then top_k ids
  Buffer<float> send_, gathered_;                 // [rows, record_floats]
  std::vector<std::int64_t> recv_bytes_;          // [num_ranks]
  std::vector<std::int32_t> expert_ids_;          // [rows of all ranks * top_k]
  std::vector<std::int32_t> assignment_to_rank_;  // [rows of all ranks * top_k]
  std::vector<std::int32_t> row_to_rank_;         // [rows of all ranks] whose row it is
  std::vector<std::int32_t> counts_;              // [num_experts], scratch of observe()
  std::vector<std::int32_t> slots_;               // [rows of all ranks * top_k]
  std::vector<std::int32_t> activated_;           // [num_ranks], scratch of observe()
  std::vector<std::int64_t> served_by_rank_;      // [num_ranks] assignments that each rank serves
  std::vector<std::int64_t> served_of_rank_;      // [num_ranks] those that this rank serves, by owner
  std::vector<std::int64_t> owned_by_rank_;       // [num_ranks] those that this rank owns, by server
  std::vector<std::int64_t> round_of_rank_;       // [num_ranks] served_of_rank_ in one round
  std::vector<ServedAssignment> served_;          // in row order
  std::vector<ServedAssignment> round_served_;
};

}  // namespace metro
