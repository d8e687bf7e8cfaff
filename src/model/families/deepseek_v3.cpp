// DeepSeek-V3 and R1, and Kimi-K2, which is the same: latent attention; experts are chosen by the sigmoid of their
// logit plus a correction, among those of the groups whose two best have the largest sum, and weighted by the sigmoid
// alone, normalised, times routed_scaling_factor.
#include "model/families/deepseek.hpp"
#include "model/families/family_entry.hpp"

namespace metro {

namespace {

ModelSpec parse(const ConfigFields& config) {
  ModelSpec spec = read_deepseek(config);
  allow_only_text(config, "scoring_func", "sigmoid");
  allow_only_text(config, "topk_method", "noaux_tc");
  GateForm& gate = spec.moe.gate;
  gate.kind = GateKind::sigmoid;
  gate.normalise = config.boolean_or("norm_topk_prob", true);
  gate.has_correction = true;
  // Their defaults are those of one model, not "none": files that leave them out mean different things to readers.
  for (const char* name :
       {"routed_scaling_factor", "n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"}) {
    config.require_field(name);
  }
  read_expert_groups(config, 2, spec.moe);
  return spec;
}

}  // namespace

FamilyEntry deepseek_v3_family() {
  return {"deepseek_v3", parse, deepseek_tensors};
}

FamilyEntry kimi_k2_family() {
  return {"kimi_k2", parse, deepseek_tensors};
}

}  // namespace metro
