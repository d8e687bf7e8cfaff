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
  if (read_window(config, spec) > 0) {
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

}  // namespace

FamilyEntry mixtral_family() {
  return {"mixtral", parse, block_sparse_tensors};
}

}  // namespace metro
