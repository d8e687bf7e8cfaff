#include "bench/gpu_model.hpp"

#include <algorithm>
#include <cmath>

namespace metro {

namespace {

constexpr double float_bytes = 4.0;

double real(std::int64_t number) {
  return static_cast<double>(number);
}

}  // namespace

LayerBytes layer_bytes(const ModelShape& shape, double batch, double lambda, const CostFigures& figures) {
  const WeightCounts weights = weight_counts(shape);
  return {figures.weight_bytes * weights.attention, batch * figures.context * real(shape.kv_values) * float_bytes,
          figures.weight_bytes * weights.beside_experts, figures.weight_bytes * weights.expert * lambda};
}

double step_bytes(const ModelShape& shape, double batch, double lambda, const CostFigures& figures) {
  const WeightCounts weights = weight_counts(shape);
  const LayerBytes layer = layer_bytes(shape, batch, lambda, figures);
  return real(shape.num_layers) * (layer.attention + layer.kv) +
         real(shape.num_layers - shape.num_dense_layers) * (layer.beside_experts + layer.experts) +
         figures.weight_bytes * (real(shape.num_dense_layers) * weights.dense_mlp + weights.head);
}

GpuStep gpu_step(const ModelShape& shape, const ScalingPoint& point, const CostFigures& figures,
                 const LaunchCosts& costs) {
  const double batch = real(point.batch);
  const std::vector<StepLaunch> launches =
      step_launches(shape, RoutedBy::device, static_cast<std::int64_t>(std::ceil(point.rows.lambda)));
  GpuStep step;
  step.layer = layer_bytes(shape, batch, point.rows.lambda, figures);
  step.bytes = step_bytes(shape, batch, point.rows.lambda, figures);
  step.layer_launches = num_launches_of(launches, StepPart::attention) + num_launches_of(launches, StepPart::experts);
  step.launches = num_launches_of_step(shape, launches);
  step.graphs = num_graphs_of_step(shape);
  step.read_s = point.cost.attention + point.cost.experts;
  step.exchange_s = point.cost.exchange;
  const double on_gpu = step.read_s + step.exchange_s + costs.gap_s * real(step.launches);
  step.alone_s = std::max(on_gpu, costs.launch_s * real(step.launches));
  step.recorded_s = std::max(on_gpu, costs.graph_s * real(step.graphs));
  return step;
}

}  // namespace metro
