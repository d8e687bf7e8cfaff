#include "model/families/tensors.hpp"

#include "checkpoint/layout.hpp"

#include <fmt/format.h>

#include <utility>

namespace metro {

namespace {

struct MlpDatasets {
  const char* gate_up;
  const char* down;
};
struct MlpShape {
  std::int64_t width;
  std::int64_t hidden;
};

void append_mlp(std::int64_t layer, const MlpDatasets& datasets, const MlpShape& shape, const std::string& module,
                TensorSources& sources) {
  sources.push_back(
      {layout::in_layer(layer, datasets.gate_up),
       {2 * shape.width, shape.hidden},
       {name_in_layer(layer, module + ".gate_proj.weight"), name_in_layer(layer, module + ".up_proj.weight")},
       false,
       true});
  append_linear(layer, datasets.down, shape.hidden, shape.width, module + ".down_proj", sources);
}

}  // namespace

TensorSource single_tensor(std::string dataset, std::vector<std::int64_t> shape, std::string part) {
  return TensorSource{std::move(dataset), std::move(shape), {std::move(part)}, false};
}

std::string name_in_layer(std::int64_t layer, const std::string& name) {
  return fmt::format("model.layers.{}.{}", layer, name);
}

void append_tensor(std::int64_t layer, const char* name, std::vector<std::int64_t> shape, const std::string& part,
                   TensorSources& sources) {
  sources.push_back(single_tensor(layout::in_layer(layer, name), std::move(shape), name_in_layer(layer, part)));
}

void append_linear(std::int64_t layer, const char* name, std::int64_t out, std::int64_t in, const std::string& module,
                   TensorSources& sources) {
  append_tensor(layer, name, {out, in}, module + ".weight", sources);
  sources.back().may_be_quantised = true;
}

void append_bias(std::int64_t layer, const char* name, std::int64_t out, const std::string& module,
                 TensorSources& sources) {
  sources.push_back(
      single_tensor(layout::bias_of(layout::in_layer(layer, name)), {out}, name_in_layer(layer, module + ".bias")));
}

void append_norm(const ModelSpec& spec, std::int64_t layer, const char* name, const std::string& module,
                 TensorSources& sources) {
  append_tensor(layer, name, {spec.hidden_size}, module + ".weight", sources);
  if (spec.norm == NormKind::layer) {
    append_bias(layer, name, spec.hidden_size, module, sources);
  }
}

void append_attention(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const AttentionSpec& attention = spec.attention;
  const auto add_projection = [&](const char* name, std::int64_t out, std::int64_t in, const char* module,
                                  bool has_bias) {
    append_linear(layer, name, out, in, module, sources);
    if (has_bias) {
      append_bias(layer, name, out, module, sources);
    }
  };
  append_norm(spec, layer, layout::attention_norm, "input_layernorm", sources);
  add_projection(layout::attention_q, spec.query_width(), hidden, "self_attn.q_proj", attention.has_qkv_bias);
  add_projection(layout::attention_k, spec.kv_width(), hidden, "self_attn.k_proj", attention.has_qkv_bias);
  add_projection(layout::attention_v, spec.kv_width(), hidden, "self_attn.v_proj", attention.has_qkv_bias);
  if (attention.query_key_norm != QueryKeyNorm::none) {
    const bool per_head = attention.query_key_norm == QueryKeyNorm::per_head;
    append_tensor(layer, layout::attention_q_norm, {per_head ? attention.head_dim : spec.query_width()},
                  "self_attn.q_norm.weight", sources);
    append_tensor(layer, layout::attention_k_norm, {per_head ? attention.head_dim : spec.kv_width()},
                  "self_attn.k_norm.weight", sources);
  }
  add_projection(layout::attention_o, hidden, spec.query_width(), "self_attn.o_proj", attention.has_output_bias);
  append_norm(spec, layer, layout::mlp_norm, "post_attention_layernorm", sources);
}

void append_dense_mlp(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  append_mlp(layer, {layout::dense_gate_up, layout::dense_down}, {spec.dense_intermediate_size, spec.hidden_size},
             "mlp", sources);
}

void append_shared_expert(const ModelSpec& spec, std::int64_t layer, const std::string& module,
                          TensorSources& sources) {
  append_mlp(layer, {layout::shared_gate_up, layout::shared_down}, {spec.moe.shared_width, spec.hidden_size}, module,
             sources);
  if (spec.moe.shared_is_gated) {
    append_tensor(layer, layout::shared_gate, {1, spec.hidden_size}, module + "_gate.weight", sources);
  }
}

void append_experts(const ModelSpec& spec, std::int64_t layer, const ExpertNames& names, TensorSources& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t width = spec.moe.intermediate_size;
  const std::int64_t num_experts = spec.moe.num_experts;
  TensorSource gate_up{
      layout::in_layer(layer, layout::experts_gate_up), {num_experts, 2 * width, hidden}, {}, true, true};
  TensorSource down{layout::in_layer(layer, layout::experts_down), {num_experts, hidden, width}, {}, true, true};
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    const std::string of_expert = name_in_layer(layer, fmt::format("{}.experts.{}.", names.module, expert));
    gate_up.parts.push_back(fmt::format("{}{}.weight", of_expert, names.gate));
    gate_up.parts.push_back(fmt::format("{}{}.weight", of_expert, names.up));
    down.parts.push_back(fmt::format("{}{}.weight", of_expert, names.down));
  }
  append_tensor(layer, layout::gate, {num_experts, hidden}, fmt::format("{}.gate.weight", names.module), sources);
  sources.push_back(std::move(gate_up));
  sources.push_back(std::move(down));
}

TensorSources tensors_of_layers(const ModelSpec& spec, AppendLayer append_layer) {
  TensorSources sources;
  sources.push_back(single_tensor(layout::embed, {spec.vocab_size, spec.hidden_size}, "model.embed_tokens.weight"));
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    append_layer(spec, layer, sources);
  }
  sources.push_back(single_tensor(layout::norm, {spec.hidden_size}, "model.norm.weight"));
  if (spec.norm == NormKind::layer) {
    sources.push_back(single_tensor(layout::bias_of(layout::norm), {spec.hidden_size}, "model.norm.bias"));
  }
  if (!spec.tied_embeddings) {
    sources.push_back(single_tensor(layout::lm_head, {spec.vocab_size, spec.hidden_size}, "lm_head.weight"));
  }
  if (spec.head_has_bias) {
    sources.push_back(single_tensor(layout::bias_of(layout::lm_head), {spec.vocab_size}, "lm_head.bias"));
  }
  return sources;
}

TensorSources block_sparse_tensors(const ModelSpec& spec) {
  return tensors_of_layers(spec, [](const ModelSpec& of, std::int64_t layer, TensorSources& sources) {
    append_attention(of, layer, sources);
    append_experts(of, layer, block_sparse_names, sources);
  });
}

}  // namespace metro
