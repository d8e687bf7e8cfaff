// From the router's choices to work, in prefill: every rank routes its own rows and sends each row to the ranks that
// need it, once. Policies that need to know all rows get the rows per expert of all ranks, in one collective more.
#pragma once

#include "base/digest.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/own_rows.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/row_exchange.hpp"
#include "model/model_spec.hpp"
#include "routing/replica_map.hpp"
#include "routing/step_router.hpp"
#include "transport/device_exchange.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class PrefillDispatch {
 public:
  // `maps` [num_moe_layers] must outlive it. max_rows: of one rank in a step; max_round_rows: of ExpertService.
  PrefillDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, const RoutingSettings& routing,
                  Digest placement_digest, RowExchange& rows, DeviceExchange& exchange, std::int64_t max_rows,
                  std::int64_t max_round_rows, PhaseClock& clock);

  // Collective. As DecodeDispatch::run. The host has what the gate chose.
  void run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
           std::span<std::int32_t> owned_to_rank);

  // To be called when `maps` have changed; routes by them from the next step on.
  void placement_changed(Digest placement_digest);
  // Routes by other settings from the next step on.
  void switch_routing(const RoutingSettings& routing);

 private:
  void gather_counts(const OwnRows& own);
  void choose_ranks(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own,
                    std::span<std::int32_t> owned_to_rank);
  Digest routing_digest(std::int64_t moe_layer, const RowBatch& batch) const;
  void send_lists(std::int64_t moe_layer, std::int64_t round, std::int64_t num_rounds, const OwnRows& own,
                  Digest digest);
  void read_lists(std::int64_t moe_layer, Digest digest);

  const ModelSpec* spec_;
  const std::vector<ReplicaMap>* maps_;
  RoutingPolicy policy_ = RoutingPolicy::even;
  StepRouterOptions options_;
  std::vector<StepRouter> routers_;  // [num_moe_layers]
  Digest placement_digest_ = 0;
  RowExchange* rows_;
  Transport* transport_;  // of the host: counts and lists
  PhaseClock* clock_;
  std::vector<std::int32_t> slots_;            // [num_rows * top_k]
  std::vector<std::int32_t> own_counts_;       // [num_experts]
  std::vector<std::int32_t> counts_of_ranks_;  // [num_ranks, num_experts]; empty if the policy needs none
  std::vector<std::int64_t> served_of_rank_, round_served_of_rank_;  // [num_ranks]
  std::vector<std::int64_t> send_bytes_, recv_bytes_;                // [num_ranks]
  std::vector<std::byte> send_list_, recv_list_;
  std::vector<ServedAssignment> served_;
};

}  // namespace metro
