// Activated experts of the current step, layer by layer, beside the least that any routing could reach.
#pragma once

#include "decoder/step_observer.hpp"
#include "placement/placement.hpp"
#include "report/run_records.hpp"
#include "routing/policy.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class ActivationRecorder : public StepObserver {
 public:
  // decode_policy: the one in use. Keeps replica maps of its own.
  ActivationRecorder(const Placement& placement, RoutingPolicy decode_policy);

  // Another placement from the next step on.
  void placement_changed(const Placement& placement);

  void routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
              std::span<const std::int32_t> activated) override;

  // Of the layers routed since the last call: [num_moe_layers] after a decode step, empty after a prefill step.
  std::vector<LayerActivation> take();

 private:
  std::int32_t optimum_of(std::int64_t moe_layer, std::span<const std::int32_t> counts, const LayerActivation& layer);

  RoutingPolicy decode_policy_;
  std::int64_t num_ranks_;
  std::vector<ReplicaMap> maps_;
  std::vector<ExpertRouter> optimal_;  // [num_moe_layers]
  std::vector<std::int32_t> scratch_;  // [num_experts]
  std::vector<LayerActivation> layers_;
};

}  // namespace metro
