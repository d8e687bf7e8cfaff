// From rows to work, in decode: the experts of all rows become known to all ranks, every rank routes them alike, and
// each serves what fell to it. How rows travel is a DecodeExchange's business and may differ from step to step.
#pragma once

#include "decoder/allgather_exchange.hpp"
#include "decoder/decode_exchange.hpp"
#include "decoder/decode_routing.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/gate.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/own_rows.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/row_exchange.hpp"
#include "decoder/step_observer.hpp"
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "routing/replica_map.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace metro {

class DecodeDispatch {
 public:
  // `maps` [num_moe_layers] and what comes by reference must outlive it, but for `routing` and `limits`.
  DecodeDispatch(const ModelSpec& spec, const std::vector<ReplicaMap>& maps, const RoutingSettings& routing, Gate& gate,
                 RowExchange& rows, DeviceExchange& exchange, const DecoderLimits& limits, PhaseClock& clock);

  // Collective, the first half of a layer: chooses the experts of own.rows by the gate with `router`, and makes
  // those of all rows known to all ranks. Waits for the kernels; the host has what the gate chose for own rows.
  void gather(const RowBatch& batch, const RouterWeights& router, const OwnRows& own);

  // Collective, the second half: routes and has `service` serve and return everything. Writes owned_to_rank
  // [num_rows * top_k].
  void run(std::int64_t moe_layer, const RowBatch& batch, const OwnRows& own, ExpertService& service,
           std::span<std::int32_t> owned_to_rank, StepObserver* observer);

  // To be called when `maps` have changed; routes by them from the next step on.
  void placement_changed() { routing_.placement_changed(); }
  // Routes by other settings from the next step on.
  void switch_routing(const RoutingSettings& routing) { routing_.switch_routing(routing); }

  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits);
  // Most rows that the gate is asked for at a time.
  static std::int64_t max_gate_rows(std::int64_t num_ranks, const DecoderLimits& limits);

 private:
  void gather_before_gate(const RowBatch& batch, const RouterWeights& router, const OwnRows& own);
  DecodeExchange& exchange_of(const RowBatch& batch);

  const ModelSpec* spec_;
  ExchangeSettings settings_;
  Gate* gate_;
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  DecodeRouting routing_;
  std::optional<AllgatherExchange> allgather_;  // those that settings_ may need
  std::optional<IdsExchange> ids_;
  Mirror<std::int32_t> ids_of_all_;          // [rows of all ranks, top_k], with a gathered gate
  Buffer<float> weights_of_all_;             // likewise
  std::vector<std::int64_t> round_of_rank_;  // [num_ranks] assignments served of each in a round
  std::vector<ServedAssignment> served_;     // of a round
};

}  // namespace metro
