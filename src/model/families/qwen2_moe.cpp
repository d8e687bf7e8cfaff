// Qwen2-MoE (Qwen1.5-MoE): attention with biases of queries, keys and values, which no field of published configs
// mentions; a layer has experts unless it is listed in mlp_only_layers or skipped by decoder_sparse_step; beside them a
// shared expert, multiplied by a sigmoid that depends on the row; router weights are a softmax over all experts, the
// top_k of them renormalised if norm_topk_prob.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("use_sliding_window", {"false"});  // without it sliding_window says nothing
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.attention.has_qkv_bias = config.boolean_or("qkv_bias", true);
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = read_sparse_layers(config, spec.num_layers);
  spec.dense_intermediate_size = read_dense_width(config, spec);
  spec.moe = read_experts(config, spec, "moe_intermediate_size");
  spec.moe.gate.normalise = config.boolean_or("norm_topk_prob", false);
  spec.moe.shared_width = config.integer({"shared_expert_intermediate_size"}, {1, max_width});
  spec.moe.shared_is_gated = true;
  return spec;
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_attention(spec, layer, sources);
  if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::dense) {
    append_dense_mlp(spec, layer, sources);
    return;
  }
  append_experts(spec, layer, {}, sources);
  append_shared_expert(spec, layer, "mlp.shared_expert", sources);
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry qwen2_moe_family() {
  return {"qwen2_moe", parse, all_tensor_sources};
}

}  // namespace metro
