#include "model/families/deepseek.hpp"

#include "base/stored_type.hpp"
#include "checkpoint/layout.hpp"
#include "model/families/common.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace metro {

namespace {

constexpr std::int64_t max_rank = 1 << 17;
constexpr std::int64_t max_dim = 1 << 12;
constexpr std::int64_t max_groups = 64;
constexpr std::int64_t max_shared_experts = 1 << 10;
constexpr float latent_norm_eps = 1e-6F;  // of the norms inside attention, whatever rms_norm_eps says

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
  config.allow_only("mlp_bias", {"false"});
  config.allow_only("use_sliding_window", {"false"});
  config.allow_only("moe_layer_freq", {"1"});
  config.allow_only("rope_interleave", {"true"});
}

void read_latent_attention(const ConfigFields& config, ModelSpec& spec) {
  LatentSpec latent;
  latent.query_rank = config.integer_or({"q_lora_rank"}, {1, max_rank}, 0);
  latent.kv_rank = config.integer({"kv_lora_rank"}, {1, max_rank});
  latent.nope_dim = config.integer({"qk_nope_head_dim"}, {1, max_dim});
  latent.rope_dim = config.integer({"qk_rope_head_dim"}, {2, max_dim});
  latent.value_dim = config.integer({"v_head_dim"}, {1, max_dim});
  latent.norm_eps = latent_norm_eps;
  if (latent.rope_dim % 2 != 0) {
    config.refuse("qk_rope_head_dim", "must be even");
  }
  AttentionSpec& attention = spec.attention;
  if (attention.num_kv_heads != attention.num_heads) {
    config.refuse("num_key_value_heads",
                  fmt::format("must be num_attention_heads = {} with latent attention", attention.num_heads));
  }
  attention.head_dim = latent.nope_dim + latent.rope_dim;
  attention.latent = latent;
  const RopeFields fields = read_rope_fields(config);
  const double yarn_scale = fields.yarn ? yarn_score_scale(*fields.yarn) : 1.0;
  attention.score_scale = static_cast<float>(yarn_scale / std::sqrt(static_cast<double>(attention.head_dim)));
  if (!std::isfinite(attention.score_scale)) {
    config.refuse("rope_scaling", "multiplies scores by more than float32 can hold (mscale_all_dim)");
  }
  spec.rope = make_rope(fields, latent.rope_dim);
  spec.rope.pairs = RopePairs::neighbours;
}

// Both norms and the projections around the cache.
void append_latent_attention(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const AttentionSpec& attention = spec.attention;
  const LatentSpec& latent = attention.latent.value();
  append_tensor(layer, layout::attention_norm, {hidden}, "input_layernorm.weight", sources);
  if (latent.query_rank > 0) {
    append_linear(layer, layout::attention_q_a, latent.query_rank, hidden, "self_attn.q_a_proj", sources);
    append_tensor(layer, layout::attention_q_a_norm, {latent.query_rank}, "self_attn.q_a_layernorm.weight", sources);
    append_linear(layer, layout::attention_q, spec.query_width(), latent.query_rank, "self_attn.q_b_proj", sources);
  } else {
    append_linear(layer, layout::attention_q, spec.query_width(), hidden, "self_attn.q_proj", sources);
  }
  append_linear(layer, layout::attention_kv_a, latent.kv_rank + latent.rope_dim, hidden, "self_attn.kv_a_proj_with_mqa",
                sources);
  // Its two parts are packed apart, so that no scale may be of rows of both.
  sources.back().may_be_quantised = latent.kv_rank % fp8_block == 0;
  append_tensor(layer, layout::attention_kv_a_norm, {latent.kv_rank}, "self_attn.kv_a_layernorm.weight", sources);
  // Used both ways round (Decoder's LatentWeights), and therefore not stored with scales.
  append_tensor(layer, layout::attention_kv_b,
                {attention.num_heads * (latent.nope_dim + latent.value_dim), latent.kv_rank},
                "self_attn.kv_b_proj.weight", sources);
  append_linear(layer, layout::attention_o, hidden, spec.attended_width(), "self_attn.o_proj", sources);
  append_tensor(layer, layout::mlp_norm, {hidden}, "post_attention_layernorm.weight", sources);
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_latent_attention(spec, layer, sources);
  append_deepseek_mlp(spec, layer, sources);
}

}  // namespace

void allow_only_text(const ConfigFields& config, const char* name, const char* text) {
  if (config.has(name) && config.text(name) != text) {
    config.refuse(name, fmt::format("is not supported (allowed: absent, \"{}\")", text));
  }
}

ModelSpec read_deepseek(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_model_sizes(config, spec);
  read_head_counts(config, spec);
  read_latent_attention(config, spec);
  read_deepseek_experts(config, spec);
  return spec;
}

void read_deepseek_experts(const ConfigFields& config, ModelSpec& spec) {
  const std::int64_t num_dense = config.integer_or({"first_k_dense_replace"}, {0, spec.num_layers}, 0);
  if (num_dense == spec.num_layers) {
    config.refuse("first_k_dense_replace",
                  fmt::format("leaves no layer with experts of num_hidden_layers = {}", spec.num_layers));
  }
  spec.layers.assign(static_cast<std::size_t>(spec.num_layers), LayerKind::moe);
  std::fill_n(spec.layers.begin(), num_dense, LayerKind::dense);
  spec.dense_intermediate_size = read_dense_width(config, spec);
  spec.moe = read_experts(config, spec, "moe_intermediate_size");
  const std::int64_t num_shared = config.integer_or({"n_shared_experts"}, {0, max_shared_experts}, 0);
  spec.moe.shared_width = num_shared * spec.moe.intermediate_size;  // they are one MLP
  spec.moe.gate.scale = static_cast<float>(config.positive_number_or("routed_scaling_factor", 1.0));
}

void read_expert_groups(const ConfigFields& config, std::int64_t best_of_group, MoeSpec& moe) {
  GateForm& gate = moe.gate;
  gate.num_groups = config.integer_or({"n_group"}, {1, max_groups}, 1);
  gate.num_kept_groups = config.integer_or({"topk_group"}, {1, gate.num_groups}, gate.num_groups);
  gate.best_of_group = best_of_group;
  if (moe.num_experts % gate.num_groups != 0 || moe.num_experts / gate.num_groups < best_of_group) {
    config.refuse("n_group",
                  fmt::format("must divide the {} experts into groups of at least {}", moe.num_experts, best_of_group));
  }
  if (gate.num_kept_groups * (moe.num_experts / gate.num_groups) < moe.top_k) {
    config.refuse("topk_group", fmt::format("groups of {} experts hold fewer than num_experts_per_tok = {}",
                                            moe.num_experts / gate.num_groups, moe.top_k));
  }
}

void append_deepseek_mlp(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::dense) {
    append_dense_mlp(spec, layer, sources);
    return;
  }
  append_experts(spec, layer, {}, sources);
  if (spec.moe.gate.has_correction) {
    append_tensor(layer, layout::gate_correction, {spec.moe.num_experts}, "mlp.gate.e_score_correction_bias", sources);
  }
  if (spec.moe.shared_width > 0) {
    append_shared_expert(spec, layer, "mlp.shared_experts", sources);
  }
}

TensorSources deepseek_tensors(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace metro
