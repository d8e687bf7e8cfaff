// Mixtral: grouped-query attention without norms of queries and keys; every layer has experts, named w1 (gate), w3 (up)
// and w2 (down); router weights are a softmax over all experts, the top_k of them always renormalised.
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

#include <fmt/format.h>

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config, const ModelSpec& spec) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
  config.allow_only("norm_topk_prob", {"true"});
  const std::int64_t window = config.integer_or({"sliding_window"}, {1, max_position_limit}, spec.max_positions);
  if (window < spec.max_positions) {
    config.refuse("sliding_window", fmt::format("is not supported (allowed: absent or null, or at least "
                                                "max_position_embeddings = {}, which no sequence outgrows)",
                                                spec.max_positions));
  }
}

ModelSpec parse(const ConfigFields& config) {
  ModelSpec spec;
  read_common_sizes(config, spec);
  refuse_what_changes_the_maths(config, spec);
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = layers_with_experts(spec.num_layers);
  spec.moe = read_experts(config, spec, "intermediate_size");
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

FamilyEntry mixtral_family() {
  return {"mixtral", parse, all_tensor_sources};
}

}  // namespace metro
