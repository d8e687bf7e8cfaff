#include "report/activation_recorder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace metro {

ActivationRecorder::ActivationRecorder(const Placement& placement, RoutingPolicy decode_policy)
    : decode_policy_(decode_policy),
      num_ranks_(placement.num_ranks),
      scratch_(static_cast<std::size_t>(placement.num_experts)) {
  placement_changed(placement);
}

void ActivationRecorder::placement_changed(const Placement& placement) {
  maps_.clear();
  optimal_.clear();
  maps_.reserve(static_cast<std::size_t>(placement.num_layers));  // optimal_ refers to its elements
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    maps_.emplace_back(placement.layer(layer), placement.num_experts, placement.num_ranks);
    optimal_.emplace_back(RoutingPolicy::exact, maps_.back());
  }
}

void ActivationRecorder::routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
                                std::span<const std::int32_t> activated) {
  LayerActivation layer;
  layer.active = static_cast<std::int32_t>(
      std::count_if(counts.begin(), counts.end(), [](std::int32_t count) { return count > 0; }));
  layer.lambda = *std::max_element(activated.begin(), activated.end());
  layer.activated = std::accumulate(activated.begin(), activated.end(), 0);
  layer.optimum = optimum_of(moe_layer, counts, layer);
  layers_.resize(maps_.size());
  layers_[static_cast<std::size_t>(moe_layer)] = layer;
}

std::int32_t ActivationRecorder::optimum_of(std::int64_t moe_layer, std::span<const std::int32_t> counts,
                                            const LayerActivation& layer) {
  // The other ranks wait while this one looks for the optimum, so it does so only where it has to.
  if (decode_policy_ == RoutingPolicy::exact || layer.lambda == lambda_lower_bound(layer.active, num_ranks_)) {
    return layer.lambda;
  }
  ExpertRouter& optimal = optimal_[static_cast<std::size_t>(moe_layer)];
  optimal.route(counts, scratch_);
  return optimal.lambda();
}

std::vector<LayerActivation> ActivationRecorder::take() {
  return std::exchange(layers_, {});
}

}  // namespace metro
