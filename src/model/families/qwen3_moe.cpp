// Qwen3-MoE: grouped-query attention with an RMSNorm per query and key head before RoPE; a layer has experts unless it
// is listed in mlp_only_layers or skipped by decoder_sparse_step; router weights are a softmax over all experts, the
// top_k of them renormalised if norm_topk_prob.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
  config.allow_only("use_sliding_window", {"false"});
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.attention.query_key_norm = QueryKeyNorm::per_head;
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = read_sparse_layers(config, spec.num_layers);
  spec.dense_intermediate_size = read_dense_width(config, spec);
  spec.moe = read_experts(config, spec, "moe_intermediate_size");
  spec.moe.gate.normalise = config.boolean("norm_topk_prob");
  return spec;
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_attention(spec, layer, sources);
  if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::moe) {
    append_experts(spec, layer, {}, sources);
  } else {
    append_dense_mlp(spec, layer, sources);
  }
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry qwen3_moe_family() {
  return {"qwen3_moe", parse, all_tensor_sources};
}

}  // namespace metro
