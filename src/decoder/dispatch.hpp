// From the router's choices to work: who serves which assignment, and how the rows get there.
// In decode all ranks gather all rows and route them alike, so nothing but rows and ids is exchanged. In prefill every
// rank routes its own rows (token-balanced) and sends each to the ranks that need it.
#pragma once

#include "base/digest.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/row_batch.hpp"
#include "kernels/buffer.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "routing/policy.hpp"
#include "routing/replica_map.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Watches what routing did; called on the rank it was given to.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Own rows: expert_ids, weights [num_rows, top_k].
  virtual void router_choices(std::int64_t /*moe_layer*/, std::int64_t /*num_rows*/,
                              std::span<const std::int32_t> /*expert_ids*/, std::span<const float> /*weights*/) {}
  // Decode: rows per expert over all ranks [num_experts], distinct experts activated on each rank [num_ranks].
  virtual void routed(std::int64_t /*moe_layer*/, std::span<const std::int32_t> /*counts*/,
                      std::span<const std::int32_t> /*activated*/) {}
};

// Rows of this rank that enter a MoE layer.
struct OwnRows {
  const float* rows = nullptr;               // [num_rows, H]
  std::span<const std::int32_t> expert_ids;  // [num_rows * top_k]
};

class DecodeDispatch {
 public:
  // `maps` [num_moe_layers] and what comes by reference must outlive it. max_rows: of one rank in a decode step.
  DecodeDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, RoutingPolicy policy, Transport& transport,
                 std::int64_t max_rows, PhaseClock& clock);

  // Collective. Gathers, routes and has `service` serve and return everything. Writes owned_to_rank [num_rows * top_k].
  void run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
           std::span<std::int32_t> owned_to_rank, StepObserver* observer);

  std::int64_t num_bytes() const { return send_.num_bytes() + gathered_.num_bytes(); }

 private:
  void gather(const RowBatch& batch, const OwnRows& own);
  void route(std::int64_t moe_layer, std::int64_t num_assignments);
  Digest routing_digest(std::int64_t num_assignments) const;
  void observe(std::int64_t moe_layer, StepObserver& observer);

  const ModelSpec* spec_;
  const std::vector<ReplicaMap>* maps_;
  RoutingPolicy policy_;
  Transport* transport_;
  PhaseClock* clock_;
  std::vector<ExpertRouter> routers_;  // [num_moe_layers], for expert-granular policies
  std::int64_t record_floats_;         // a gathered row: H floats, then top_k ids
  Buffer<float> send_, gathered_;      // [rows, record_floats]
  std::vector<std::int64_t> recv_bytes_;
  std::vector<std::int32_t> expert_ids_;          // [rows of all ranks * top_k]
  std::vector<std::int32_t> assignment_to_rank_;  // [rows of all ranks * top_k]
  std::vector<std::int32_t> counts_, expert_to_rank_, slots_;
  std::vector<std::int32_t> activated_;  // scratch of observe(), [num_ranks]
  std::vector<bool> is_activated_;       // scratch of observe(), [num_ranks * num_experts]
  std::vector<std::int64_t> served_by_rank_, served_of_rank_, owned_by_rank_;
  std::vector<ServedAssignment> served_, round_served_;
};

class PrefillDispatch {
 public:
  PrefillDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, Digest placement_digest,
                  Transport& transport, std::int64_t max_rows, std::int64_t max_round_rows, PhaseClock& clock);

  void run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
           std::span<std::int32_t> owned_to_rank);

  std::int64_t num_bytes() const { return send_rows_.num_bytes() + recv_rows_.num_bytes(); }

 private:
  // One assignment in the list that goes ahead of the rows.
  struct SentAssignment {
    std::int32_t row;  // of the rows in the same message
    std::int32_t expert;
  };
  struct ListHeader {
    Digest digest;
    std::int64_t num_assignments;
    std::int64_t num_rows;
  };
  void choose_ranks(std::int64_t moe_layer, const OwnRows& own, std::span<std::int32_t> owned_to_rank);
  void send_lists(std::int64_t moe_layer, std::int64_t round, std::int64_t num_rounds, const OwnRows& own,
                  Digest digest);
  void send_rows();

  const ModelSpec* spec_;
  const std::vector<ReplicaMap>* maps_;
  Digest placement_digest_;
  Transport* transport_;
  PhaseClock* clock_;
  Buffer<float> send_rows_, recv_rows_;
  std::vector<std::int32_t> occurrences_, slots_;
  std::vector<std::int64_t> owned_by_rank_, served_of_rank_, round_served_of_rank_;
  std::vector<std::int64_t> owned_begin_, owned_;  // own assignments grouped by serving rank
  std::vector<std::int64_t> send_bytes_, recv_bytes_, rows_to_rank_, rows_from_rank_;
  std::vector<std::byte> send_list_, recv_list_;
  std::vector<ServedAssignment> served_;
};

}  // namespace metro
