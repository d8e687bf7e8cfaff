// Phi-3.5-MoE and its smaller relatives: LayerNorm with mean and bias; attention and head with biases where config.json
// says so; every layer has experts, named w1 (gate), w3 (up) and w2 (down), of which sparsemixer picks two; LongRoPE.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

#include <fmt/format.h>

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("num_experts_per_tok", {"2"});  // sparsemixer is defined for two picks
}

// All layers have one window, if a sequence can outgrow it.
std::vector<std::int64_t> read_windows(const ConfigFields& config, const ModelSpec& spec) {
  const std::int64_t window = config.integer_or({"sliding_window"}, {1, max_position_limit}, spec.max_positions);
  if (window >= spec.max_positions) {
    return {};
  }
  return std::vector<std::int64_t>(static_cast<std::size_t>(spec.num_layers), window);
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.norm = NormKind::layer;
  spec.attention.has_qkv_bias = config.boolean_or("attention_bias", false);
  spec.attention.has_output_bias = spec.attention.has_qkv_bias;
  spec.attention.windows = read_windows(config, spec);
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = layers_with_experts(spec.num_layers);
  spec.moe = read_experts(config, spec, "intermediate_size");
  spec.moe.gate = {.kind = GateKind::sparsemixer,
                   .normalise = false,
                   .jitter = static_cast<float>(config.positive_number("router_jitter_noise"))};
  spec.head_has_bias = config.boolean_or("lm_head_bias", false);
  if (spec.head_has_bias && spec.tied_embeddings) {
    config.refuse("lm_head_bias", "is not supported with tie_word_embeddings = true");
  }
  return spec;
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_attention(spec, layer, sources);
  append_experts(spec, layer, block_sparse_names, sources);
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry phimoe_family() {
  return {"phimoe", parse, all_tensor_sources};
}

}  // namespace metro
