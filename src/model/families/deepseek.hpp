// What the DeepSeek families share: latent attention, dense layers before those with experts, shared experts, groups of
// experts, and the names of their tensors. Layers behind num_hidden_layers, which predict further tokens, are not read.
#pragma once

#include "model/config_fields.hpp"
#include "model/families/tensors.hpp"
#include "model/model_spec.hpp"

#include <cstdint>

namespace metro {

// Everything but the gate's form. Throws Error(checkpoint) for what would change the maths.
ModelSpec read_deepseek(const ConfigFields& config);

// Layers, experts and the shared expert, of a spec that has sizes and attention.
void read_deepseek_experts(const ConfigFields& config, ModelSpec& spec);

// Groups of experts and by how many of its best a group counts, of the topk_method of config.json.
void read_expert_groups(const ConfigFields& config, std::int64_t best_of_group, MoeSpec& moe);

// The field `name` must be absent or this text, which is what a family without it means.
void allow_only_text(const ConfigFields& config, const char* name, const char* text);

// Router, experts and shared expert, or the MLP of a dense layer.
void append_deepseek_mlp(const ModelSpec& spec, std::int64_t layer, TensorSources& sources);

// The whole list for models with latent attention.
TensorSources deepseek_tensors(const ModelSpec& spec);

}  // namespace metro
