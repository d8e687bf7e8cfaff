// DeepSeek-MoE (model_type deepseek), the first of its line: grouped-query attention as in Llama; router weights are a
// softmax over all experts, of which the best top_k are taken, normalised if norm_topk_prob; shared experts.
#include "model/families/common.hpp"
#include "model/families/deepseek.hpp"
#include "model/families/family_entry.hpp"

namespace metro {

namespace {

ModelSpec parse(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
  config.allow_only("moe_layer_freq", {"1"});
  allow_only_text(config, "scoring_func", "softmax");
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  read_deepseek_experts(config, spec);
  spec.moe.gate.normalise = config.boolean("norm_topk_prob");
  return spec;
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_attention(spec, layer, sources);
  append_deepseek_mlp(spec, layer, sources);
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry deepseek_moe_family() {
  return {"deepseek", parse, all_tensor_sources};
}

}  // namespace metro
