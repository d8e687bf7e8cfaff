// Shapes of published models, by name: what the benchmarks make weights of.
#pragma once

#include "model/model_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// A matrix that decode reads in every layer, or the head.
struct LinearShape {
  std::string name;
  std::int64_t out = 0, in = 0;
};

struct ModelShape {
  std::string name;
  std::int64_t hidden = 0, expert_width = 0, num_experts = 0, top_k = 0, vocab = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::vector<LinearShape> linears;
  bool is_published = true;  // else it is for trying a benchmark out
  std::int64_t num_layers = 0;
  std::int64_t num_dense_layers = 0, dense_width = 0;  // of the layers: with an MLP of that width in place of experts
  std::int64_t shared_width = 0;                       // of what every row passes beside its experts
  bool shared_is_gated = false;                        // and is multiplied by a sigmoid
  std::int64_t kv_values = 0;                          // in the KV cache, of a token in a layer
  std::int64_t num_inner_norms = 0;                    // of attention, between its projections
  std::string family = "qwen3_moe";                    // whose attention it has
  std::optional<LatentSpec> latent = {};               // in place of grouped queries
  GateForm gate = {};
};

// `option` is what the name was given to ("bench kernels: --model"). Throws Error(usage) naming the models known.
const ModelShape& model_shape(std::string_view name, const std::string& option);

// The names, in order.
std::vector<std::string> model_shape_names();

// The same experts in a model with grouped-query attention, a plain gate and no shared expert.
ModelShape with_routed_experts_only(ModelShape shape);

// A model of that shape, all layers with experts.
ModelSpec model_spec_of(const ModelShape& shape, std::int64_t num_layers, std::int64_t vocab);

}  // namespace metro
