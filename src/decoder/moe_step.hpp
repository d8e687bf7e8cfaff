// The expert half of a layer: norm, shared expert, router, dispatch, experts, combine, residual. Also the dense MLP of
// dense layers. A row's result is (residual + shared) + experts, wherever each of them is computed.
#pragma once

#include "decoder/decode_dispatch.hpp"
#include "decoder/dense_weights.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/expert_store.hpp"
#include "decoder/gate.hpp"
#include "decoder/listed_decode.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/prefill_dispatch.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/row_exchange.hpp"
#include "decoder/step_observer.hpp"
#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace metro {

class MoeStep {
 public:
  // All arguments must outlive it.
  MoeStep(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing, ExpertStore& store,
          DeviceExchange& exchange, const DecoderLimits& limits, PhaseClock& clock);

  // Collective, also with zero rows. residual [num_rows, H], memory of kernels, += experts of MoE layer
  // `moe_layer`.
  void run(std::int64_t moe_layer, const DenseLayer& weights, const RowBatch& batch, float* residual,
           StepObserver* observer);

  // What serves a step that it can serve, in place of run(); else nullptr. The same on all ranks.
  ListedDecode* listed_for(const RowBatch& batch) { return listed_ && listed_->serves(batch) ? &*listed_ : nullptr; }
  // Kernels: the norm, the shared expert, then listed.choose(). residual [padded rows, H] += the shared expert.
  void choose(ListedDecode& listed, std::int64_t moe_layer, const DenseLayer& weights, const std::int32_t* positions,
              float* residual);

  // residual [num_rows, H] += dense MLP. Local.
  void run_dense(const DenseLayer& weights, std::int64_t num_rows, float* residual);

  // Routes by another placement of the same shape from the next step on. Local; the same on all ranks.
  void switch_placement(const Placement& placement);

  // Routes by other settings from the next step on. Local; the same on all ranks.
  void switch_routing(const RoutingSettings& routing);

  MoeStep(const MoeStep&) = delete;  // the dispatches point to maps_
  MoeStep& operator=(const MoeStep&) = delete;

  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(const ModelSpec& spec, const Placement& placement, const DecoderLimits& limits);

 private:
  void make_listed();
  void compute_mlp(const ExpertWeights& mlp, std::int64_t num_rows);
  void add_shared(const DenseLayer& weights, std::int64_t num_rows, float* residual);

  const ModelSpec* spec_;
  ExpertStore* store_;
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  DecoderLimits limits_;
  Placement placement_;
  RoutingSettings routing_;
  std::vector<ReplicaMap> maps_;  // [num_moe_layers]
  ExpertService service_;
  Gate gate_;
  RowExchange rows_;
  DecodeDispatch decode_;
  PrefillDispatch prefill_;
  std::optional<ListedDecode> listed_;       // where wanted and possible
  Buffer<float> normed_;                     // [max_rows, H]
  Mirror<std::int32_t> expert_ids_;          // [max_rows, top_k]
  Mirror<float> weights_;                    // [max_rows, top_k]
  std::vector<std::int32_t> owned_to_rank_;  // [max_rows, top_k]
  Mirror<std::int64_t> result_offsets_;      // [max_rows, top_k]
  Buffer<float> combined_;                   // [max_rows, H]
  Buffer<float> dense_hidden_;               // [max_rows, width of a dense MLP or of the shared expert]
  Buffer<float> shared_gates_;               // [max_rows], if the shared expert is gated
};

}  // namespace metro
