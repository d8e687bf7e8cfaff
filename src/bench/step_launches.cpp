#include "bench/step_launches.hpp"

#include "base/integers.hpp"

namespace metro {

namespace {

// Experts that one pair of kernels serves: what fits into the arguments of a launch.
constexpr std::int64_t experts_of_launch = 64;

std::int64_t num_projections(const ModelShape& shape) {
  std::int64_t count = 0;
  for (const LinearShape& linear : shape.linears) {
    if (linear.name != "router" && linear.name != "lm_head") {
      // Of latent attention, kv_a gives latents and rotated keys; kv_b is used once for queries and once for values.
      const bool is_two = linear.name == "k, v" || linear.name == "kv_a" || linear.name == "kv_b";
      count += is_two ? 2 : 1;
    }
  }
  return count;
}

}  // namespace

std::vector<StepLaunch> step_launches(const ModelShape& shape, RoutedBy routed_by, std::int64_t num_activated) {
  const bool by_device = routed_by == RoutedBy::device;
  const std::int64_t expert_calls = by_device ? 1 : ceil_div(num_activated, experts_of_launch);
  std::vector<StepLaunch> launches{
      {StepPart::ends, "embed", 1},
      {StepPart::attention, "norm", 1},
      {StepPart::attention, "projections", num_projections(shape)},
      {StepPart::attention, "norms between projections", shape.num_inner_norms},
      {StepPart::attention, "positions of queries and keys", 2},
      {StepPart::attention, "write keys and values", 1},
      {StepPart::attention, "attention", 1},
      {StepPart::attention, "add", 1},
      {StepPart::experts, "norm", 1},
      {StepPart::experts, "router", 1},
      {StepPart::experts, "choose experts", 1},
      {StepPart::experts, "pack rows and ids for all ranks, unpack ids", by_device ? 2 : 3},
      by_device ? StepLaunch{StepPart::experts, "route", 1}
                : StepLaunch{StepPart::experts, "gather rows of experts", 1},
      {StepPart::experts, "gate and up", expert_calls},
      {StepPart::experts, "down", expert_calls},
      {StepPart::experts, "pack results", 1},
      by_device ? StepLaunch{StepPart::experts, "check headers", 1}
                : StepLaunch{StepPart::experts, "write and take headers", 2},
      by_device ? StepLaunch{StepPart::experts, "combine and add", 1}
                : StepLaunch{StepPart::experts, "combine, add", 2},
      {StepPart::dense_mlp, "norm", 1},
      {StepPart::dense_mlp, "gate and up", 1},
      {StepPart::dense_mlp, "down", 1},
      {StepPart::dense_mlp, "add", 1},
      {StepPart::ends, "gather sampled rows", 1},
      {StepPart::ends, "norm", 1},
      {StepPart::ends, "head", 1}};
  if (shape.shared_width > 0) {
    launches.insert(launches.end(), {{StepPart::experts, "shared expert: gate and up", 1},
                                     {StepPart::experts, "shared expert: down", 1},
                                     {StepPart::experts, "shared expert: add", 1}});
  }
  if (shape.shared_is_gated) {
    launches.push_back({StepPart::experts, "shared expert: gate", 1});
  }
  return launches;
}

std::int64_t num_graphs_of_step(const ModelShape& shape) {
  return shape.num_layers + (shape.num_layers - shape.num_dense_layers) + 1;
}

std::int64_t num_launches_of(const std::vector<StepLaunch>& launches, StepPart part) {
  std::int64_t count = 0;
  for (const StepLaunch& launch : launches) {
    count += launch.part == part ? launch.times : 0;
  }
  return count;
}

std::int64_t num_launches_of_step(const ModelShape& shape, const std::vector<StepLaunch>& launches) {
  const auto of = [&](StepPart part) { return num_launches_of(launches, part); };
  return of(StepPart::ends) + shape.num_layers * of(StepPart::attention) +
         (shape.num_layers - shape.num_dense_layers) * of(StepPart::experts) +
         shape.num_dense_layers * of(StepPart::dense_mlp);
}

}  // namespace metro
