// OLMoE: attention with an RMSNorm over all query heads together and one over all key heads, before the split into
// heads and RoPE; queries, keys and values are clipped if clip_qkv is given; every layer has experts; router weights
// are a softmax over all experts, the top_k of them renormalised if norm_topk_prob.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec, {.norm_eps = 1e-5});
  spec.attention.query_key_norm = QueryKeyNorm::full_width;
  spec.attention.clip = static_cast<float>(config.positive_number_or("clip_qkv", 0.0));
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = layers_with_experts(spec.num_layers);
  spec.moe = read_experts(config, spec, "intermediate_size");
  spec.moe.gate.normalise = config.boolean_or("norm_topk_prob", false);
  return spec;
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_attention(spec, layer, sources);
  append_experts(spec, layer, {}, sources);
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry olmoe_family() {
  return {"olmoe", parse, all_tensor_sources};
}

}  // namespace metro
