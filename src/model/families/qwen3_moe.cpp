// Qwen3-MoE: grouped-query attention with an RMSNorm per query and key head before RoPE; a layer has experts unless it
// is listed in mlp_only_layers or skipped by decoder_sparse_step; router weights are a softmax over all experts, the
// top_k of them renormalised if norm_topk_prob.
#include "checkpoint/layout.hpp"
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"false"});
  config.allow_only("use_sliding_window", {"false"});
}

std::vector<LayerKind> read_layer_kinds(const ConfigFields& config, std::int64_t num_layers) {
  const auto dense_layers = config.integers("mlp_only_layers", {0, num_layers - 1});
  const std::int64_t step = config.integer_or({"decoder_sparse_step"}, {1, num_layers}, 1);
  std::vector<LayerKind> layers;
  for (std::int64_t layer_idx = 0; layer_idx < num_layers; ++layer_idx) {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), layer_idx) != dense_layers.end();
    layers.push_back(!listed && (layer_idx + 1) % step == 0 ? LayerKind::moe : LayerKind::dense);
  }
  if (std::find(layers.begin(), layers.end(), LayerKind::moe) == layers.end()) {
    config.refuse("mlp_only_layers", fmt::format("with decoder_sparse_step = {} leaves no layer with experts", step));
  }
  return layers;
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.attention.query_key_norm = QueryKeyNorm::per_head;
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = read_layer_kinds(config, spec.num_layers);
  spec.dense_intermediate_size = read_dense_width(config, spec);
  spec.moe = read_experts(config, spec);
  spec.moe.gate.normalise = config.boolean("norm_topk_prob");
  return spec;
}

void append_attention(const ModelSpec& spec, std::int64_t layer, std::vector<TensorSource>& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t head_dim = spec.attention.head_dim;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, const char* part) {
    sources.push_back(single_tensor(layout::in_layer(layer, name), std::move(shape), prefix + part));
  };
  const auto add_projection = [&](const char* name, std::int64_t out, std::int64_t in, const char* part) {
    add(name, {out, in}, part);
    sources.back().may_be_int8 = true;
  };
  add(layout::attention_norm, {hidden}, "input_layernorm.weight");
  add_projection(layout::attention_q, spec.query_width(), hidden, "self_attn.q_proj.weight");
  add_projection(layout::attention_k, spec.kv_width(), hidden, "self_attn.k_proj.weight");
  add_projection(layout::attention_v, spec.kv_width(), hidden, "self_attn.v_proj.weight");
  add(layout::attention_q_norm, {head_dim}, "self_attn.q_norm.weight");
  add(layout::attention_k_norm, {head_dim}, "self_attn.k_norm.weight");
  add_projection(layout::attention_o, hidden, spec.query_width(), "self_attn.o_proj.weight");
  add(layout::mlp_norm, {hidden}, "post_attention_layernorm.weight");
}

void append_dense_mlp(const ModelSpec& spec, std::int64_t layer, std::vector<TensorSource>& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t width = spec.dense_intermediate_size;
  const std::string prefix = fmt::format("model.layers.{}.mlp.", layer);
  sources.push_back({layout::in_layer(layer, layout::dense_gate_up),
                     {2 * width, hidden},
                     {prefix + "gate_proj.weight", prefix + "up_proj.weight"},
                     false,
                     true});
  sources.push_back(
      single_tensor(layout::in_layer(layer, layout::dense_down), {hidden, width}, prefix + "down_proj.weight"));
  sources.back().may_be_int8 = true;
}

void append_experts(const ModelSpec& spec, std::int64_t layer, std::vector<TensorSource>& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t width = spec.moe.intermediate_size;
  const std::int64_t num_experts = spec.moe.num_experts;
  const std::string prefix = fmt::format("model.layers.{}.mlp.", layer);
  TensorSource gate_up{
      layout::in_layer(layer, layout::experts_gate_up), {num_experts, 2 * width, hidden}, {}, true, true};
  TensorSource down{layout::in_layer(layer, layout::experts_down), {num_experts, hidden, width}, {}, true, true};
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    const std::string of_expert = fmt::format("{}experts.{}.", prefix, expert);
    gate_up.parts.push_back(of_expert + "gate_proj.weight");
    gate_up.parts.push_back(of_expert + "up_proj.weight");
    down.parts.push_back(of_expert + "down_proj.weight");
  }
  sources.push_back(
      single_tensor(layout::in_layer(layer, layout::gate), {num_experts, hidden}, prefix + "gate.weight"));
  sources.push_back(std::move(gate_up));
  sources.push_back(std::move(down));
}

std::vector<TensorSource> all_tensor_sources(const ModelSpec& spec) {
  std::vector<TensorSource> sources;
  sources.push_back(single_tensor(layout::embed, {spec.vocab_size, spec.hidden_size}, "model.embed_tokens.weight"));
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    append_attention(spec, layer, sources);
    if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::moe) {
      append_experts(spec, layer, sources);
    } else {
      append_dense_mlp(spec, layer, sources);
    }
  }
  sources.push_back(single_tensor(layout::norm, {spec.hidden_size}, "model.norm.weight"));
  if (!spec.tied_embeddings) {
    sources.push_back(single_tensor(layout::lm_head, {spec.vocab_size, spec.hidden_size}, "lm_head.weight"));
  }
  return sources;
}

}  // namespace

FamilyEntry qwen3_moe_family() {
  return {"qwen3_moe", parse, all_tensor_sources};
}

}  // namespace metro
