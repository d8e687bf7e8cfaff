// gpt-oss: biases in all linear layers but the head; one sink logit per query head; layers that slide see the newest
// sliding_window keys; YaRN whose range is not rounded; the router's logits include a bias, and weights are a softmax
// over the chosen ones; experts are fused, [in, out] with columns of gate and up in turns, and join the two by a
// clamped SwiGLU.
#include "checkpoint/layout.hpp"
#include "model/families/common.hpp"
#include "model/families/family_entry.hpp"
#include "model/families/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace metro {

namespace {

constexpr const char* sliding = "sliding_attention";
constexpr const char* full = "full_attention";

void refuse_what_changes_the_maths(const ConfigFields& config) {
  config.allow_only("hidden_act", {"\"silu\""});
  config.allow_only("attention_bias", {"true"});
  if (!config.has("rope_scaling") && !config.has("rope_parameters")) {
    config.refuse("rope_scaling", "must be given, or rope_parameters");
  }
}

// The newest keys that the queries of a layer see, 0: all. Without layer_types layers take turns, and the first slides.
std::vector<std::int64_t> read_windows(const ConfigFields& config, std::int64_t num_layers) {
  std::vector<std::string> types = config.texts("layer_types");
  if (!config.has("layer_types")) {
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      types.emplace_back(layer % 2 == 0 ? sliding : full);
    }
  }
  if (std::ssize(types) != num_layers) {
    config.refuse("layer_types", fmt::format("must have an entry for each of num_hidden_layers = {}", num_layers));
  }
  const bool any_slides = std::find(types.begin(), types.end(), sliding) != types.end();
  const std::int64_t window = any_slides ? config.integer({"sliding_window"}, {1, max_position_limit}) : 0;
  std::vector<std::int64_t> windows;
  for (const std::string& type : types) {
    if (type != sliding && type != full) {
      config.refuse("layer_types",
                    fmt::format("has \"{}\", which is not supported (allowed: {}, {})", type, sliding, full));
    }
    windows.push_back(type == sliding ? window : 0);
  }
  return windows;
}

ModelSpec parse(const ConfigFields& config) {
  refuse_what_changes_the_maths(config);
  ModelSpec spec;
  read_common_sizes(config, spec);
  spec.attention.has_qkv_bias = true;
  spec.attention.has_output_bias = true;
  spec.attention.has_sinks = true;
  spec.attention.windows = read_windows(config, spec.num_layers);
  spec.rope = make_rope(read_rope_fields(config), spec.attention.head_dim);
  spec.layers = layers_with_experts(spec.num_layers);
  spec.moe = read_experts(config, spec, "intermediate_size");
  spec.moe.gate.kind = GateKind::chosen_softmax;
  spec.moe.activation.kind = ActivationKind::clamped_swiglu;
  spec.moe.activation.limit = static_cast<float>(config.positive_number_or("swiglu_limit", 7.0));
  return spec;
}

// A dataset of all experts from the one tensor "mlp.experts.<part>".
void append_fused(std::int64_t layer, const std::string& dataset, std::vector<std::int64_t> shape, const char* part,
                  const PartOrder& order, TensorSources& sources) {
  TensorSource source = single_tensor(layout::in_layer(layer, dataset), std::move(shape),
                                      name_in_layer(layer, fmt::format("mlp.experts.{}", part)));
  source.per_expert = true;
  source.may_be_quantised = order.is_transposed;  // a matrix, no bias
  source.order = order;
  sources.push_back(std::move(source));
}

void append_layer(const ModelSpec& spec, std::int64_t layer, TensorSources& sources) {
  const std::int64_t hidden = spec.hidden_size;
  const std::int64_t width = spec.moe.intermediate_size;
  const std::int64_t num_experts = spec.moe.num_experts;
  append_attention(spec, layer, sources);
  append_tensor(layer, layout::attention_sinks, {spec.attention.num_heads}, "self_attn.sinks", sources);
  append_tensor(layer, layout::gate, {num_experts, hidden}, "mlp.router.weight", sources);
  append_bias(layer, layout::gate, num_experts, "mlp.router", sources);
  append_fused(layer, layout::experts_gate_up, {num_experts, 2 * width, hidden}, "gate_up_proj",
               {.holds_all_experts = true, .is_transposed = true, .is_interleaved = true}, sources);
  append_fused(layer, layout::bias_of(layout::experts_gate_up), {num_experts, 2 * width}, "gate_up_proj_bias",
               {.holds_all_experts = true, .is_interleaved = true}, sources);
  append_fused(layer, layout::experts_down, {num_experts, hidden, width}, "down_proj",
               {.holds_all_experts = true, .is_transposed = true}, sources);
  append_fused(layer, layout::bias_of(layout::experts_down), {num_experts, hidden}, "down_proj_bias",
               {.holds_all_experts = true}, sources);
}

TensorSources all_tensor_sources(const ModelSpec& spec) {
  return tensors_of_layers(spec, append_layer);
}

}  // namespace

FamilyEntry gpt_oss_family() {
  return {"gpt_oss", parse, all_tensor_sources};
}

}  // namespace metro
