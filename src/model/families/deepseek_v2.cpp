// DeepSeek-V2 and V2-Lite: latent attention, in Lite without a latent of queries; router weights are a softmax over all
// experts, of which the best top_k are taken (greedy) or those of the best groups (group_limited_greedy). They are
// multiplied by routed_scaling_factor and not normalised.
#include "model/families/deepseek.hpp"
#include "model/families/family_entry.hpp"

namespace metro {

namespace {

ModelSpec parse(const ConfigFields& config) {
  ModelSpec spec = read_deepseek(config);
  allow_only_text(config, "scoring_func", "softmax");
  // Published code scales only weights that are not normalised, transformers never normalises: true has no one meaning.
  config.allow_only("norm_topk_prob", {"false"});
  spec.moe.gate.kind = GateKind::softmax;
  spec.moe.gate.normalise = false;
  config.allow_only("topk_method", {"\"greedy\"", "\"group_limited_greedy\""});
  if (config.has("topk_method") && config.text("topk_method") == "group_limited_greedy") {
    read_expert_groups(config, 1, spec.moe);
  }
  return spec;
}

}  // namespace

FamilyEntry deepseek_v2_family() {
  return {"deepseek_v2", parse, deepseek_tensors};
}

}  // namespace metro
