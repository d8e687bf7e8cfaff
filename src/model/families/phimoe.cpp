// Phi-3.5-MoE and its smaller relatives: LayerNorm with mean and bias; attention and head with biases where config.json
// says so; every layer has experts, named w1 (gate), w3 (up) and w2 (down), of which sparsemixer picks two; LongRoPE.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("num_experts_per_tok", {"2"});  // sparsemixer is defined for two picks
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.norm = NormKind::layer;
  spec.attention.has_qkv_bias = config.boolean_or("attention_bias", false);
  spec.attention.has_output_bias = spec.attention.has_qkv_bias;
  if (const std::int64_t window = read_window(config, spec); window > 0) {
    spec.attention.windows.assign(static_cast<std::size_t>(spec.num_layers), window);
  }
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

}  // namespace

FamilyEntry phimoe_family() {
  return {"phimoe", parse, block_sparse_tensors};
}

}  // namespace metro
