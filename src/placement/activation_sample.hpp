// ActivationSample: which experts were active in recorded or drawn steps, per MoE layer. What the activation-aware
// placement plans with and what a placement is judged by. Plain data; a routing trace or anything else may fill it.
#pragma once

#include "placement/placement.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class ActivationSample {
 public:
  ActivationSample() = default;
  // No expert is active yet. All counts >= 1 except num_steps >= 0.
  ActivationSample(std::int64_t num_steps, std::int64_t num_layers, std::int64_t num_experts);

  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_layers() const { return num_layers_; }
  std::int64_t num_experts() const { return num_experts_; }

  void set_active(std::int64_t step, std::int64_t moe_layer, std::int64_t expert);
  bool is_active(std::int64_t step, std::int64_t moe_layer, std::int64_t expert) const;

  // Active experts of a step, ascending.
  std::vector<std::int32_t> active_experts(std::int64_t step, std::int64_t moe_layer) const;
  // Steps in which each expert of a layer was active. [num_experts]
  std::vector<std::int64_t> steps_of_experts(std::int64_t moe_layer) const;

 private:
  std::size_t word_of(std::int64_t step, std::int64_t moe_layer, std::int64_t expert) const;

  std::int64_t num_steps_ = 0;
  std::int64_t num_layers_ = 0;
  std::int64_t num_experts_ = 0;
  std::int64_t num_words_ = 0;        // 64-bit words per step and layer
  std::vector<std::uint64_t> words_;  // [num_layers, num_steps, num_words]; bit e % 64 of word e / 64: e is active
};

// Of one MoE layer over all steps of a sample.
struct LayerLambda {
  double expected = 0.0;  // mean over steps of the least lambda that any routing can reach (policy `exact`)
  double bound = 0.0;     // mean over steps of ceil(active / ranks): no placement has less
};

// One entry per layer. The placement has the layers and experts of the sample; at most 1024 ranks.
std::vector<LayerLambda> expected_lambda(const ActivationSample& sample, const Placement& placement);

}  // namespace metro
