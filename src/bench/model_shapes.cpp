// Numbers are those of the models' config.json.
#include "bench/model_shapes.hpp"

#include "base/error.hpp"
#include "model/rope_scaling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

namespace metro {

namespace {

ModelShape with_grouped_queries(std::int64_t num_layers, ModelShape shape) {
  shape.num_layers = num_layers;
  const std::int64_t query_width = shape.num_heads * shape.head_dim;
  shape.kv_values = 2 * shape.num_kv_heads * shape.head_dim;
  shape.num_inner_norms = 2;  // of q and k
  shape.linears = {{"q", query_width, shape.hidden},
                   {"k, v", shape.num_kv_heads * shape.head_dim, shape.hidden},
                   {"o", shape.hidden, query_width},
                   {"router", shape.num_experts, shape.hidden},
                   {"lm_head", shape.vocab, shape.hidden}};
  return shape;
}

std::vector<ModelShape> make_shapes() {
  ModelShape deepseek{"deepseek-v3", 7168, 2048, 256, 8, 129280, 128, 128, 192, {}};
  deepseek.linears = {{"q_a", 1536, 7168}, {"q_b", 24576, 1536},  {"kv_a", 576, 7168},      {"kv_b", 32768, 512},
                      {"o", 7168, 16384},  {"router", 256, 7168}, {"lm_head", 129280, 7168}};
  deepseek.num_layers = 61;
  deepseek.num_dense_layers = 3;
  deepseek.dense_width = 18432;
  deepseek.shared_width = 2048;
  deepseek.kv_values = 576;  // compressed
  deepseek.num_inner_norms = 2;
  deepseek.family = "deepseek_v3";
  deepseek.latent = LatentSpec{
      .query_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128, .norm_eps = 1e-6F};
  deepseek.gate = {.kind = GateKind::sigmoid,
                   .scale = 2.5F,
                   .num_groups = 8,
                   .num_kept_groups = 4,
                   .best_of_group = 2,
                   .has_correction = true};
  ModelShape mixtral = with_grouped_queries(32, {"mixtral-8x7b", 4096, 14336, 8, 2, 32000, 32, 8, 128, {}});
  mixtral.num_inner_norms = 0;
  mixtral.family = "mixtral";
  ModelShape qwen2 = with_grouped_queries(24, {"qwen1.5-moe-a2.7b", 2048, 1408, 60, 4, 151936, 16, 16, 128, {}});
  qwen2.num_inner_norms = 0;
  qwen2.shared_width = 5632;
  qwen2.shared_is_gated = true;
  qwen2.family = "qwen2_moe";
  ModelShape olmoe = with_grouped_queries(16, {"olmoe-1b-7b", 2048, 1024, 64, 8, 50304, 16, 16, 128, {}});
  olmoe.family = "olmoe";
  ModelShape tiny = with_grouped_queries(6, {"tiny", 64, 32, 8, 2, 256, 4, 2, 16, {}});
  tiny.is_published = false;
  return {with_grouped_queries(48, {"qwen3-30b-a3b", 2048, 768, 128, 8, 151936, 32, 4, 128, {}}),
          with_grouped_queries(94, {"qwen3-235b-a22b", 4096, 1536, 128, 8, 151936, 64, 4, 128, {}}),
          std::move(mixtral),
          std::move(deepseek),
          std::move(qwen2),
          std::move(olmoe),
          std::move(tiny)};
}

const std::vector<ModelShape>& shapes() {
  static const std::vector<ModelShape> all = make_shapes();
  return all;
}

}  // namespace

std::vector<std::string> model_shape_names() {
  std::vector<std::string> names;
  for (const ModelShape& shape : shapes()) {
    names.push_back(shape.name);
  }
  return names;
}

const ModelShape& model_shape(std::string_view name, const std::string& option) {
  for (const ModelShape& shape : shapes()) {
    if (shape.name == name) {
      return shape;
    }
  }
  throw Error(ExitCode::usage, fmt::format("{} {}: must be one of {}", option, one_line(std::string(name)),
                                           fmt::join(model_shape_names(), ", ")));
}

ModelShape with_routed_experts_only(ModelShape shape) {
  shape.family = "qwen3_moe";
  shape.latent.reset();
  shape.gate = {};
  shape.shared_width = 0;
  shape.shared_is_gated = false;
  return shape;
}

ModelSpec model_spec_of(const ModelShape& shape, std::int64_t num_layers, std::int64_t vocab) {
  ModelSpec spec;
  spec.family = shape.family;
  spec.num_layers = num_layers;
  spec.hidden_size = shape.hidden;
  spec.vocab_size = vocab;
  spec.max_positions = 1 << 20;
  spec.norm_eps = 1e-6F;
  spec.attention.num_heads = shape.num_heads;
  spec.attention.num_kv_heads = shape.num_kv_heads;
  spec.attention.head_dim = shape.head_dim;
  spec.attention.score_scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  if (shape.num_inner_norms > 0 && !shape.latent) {
    spec.attention.query_key_norm = shape.family == "olmoe" ? QueryKeyNorm::full_width : QueryKeyNorm::per_head;
  }
  spec.attention.has_qkv_bias = shape.family == "qwen2_moe";
  spec.attention.latent = shape.latent;
  spec.rope.theta = 1e6;
  spec.rope.pairs = shape.latent ? RopePairs::neighbours : RopePairs::halves;
  spec.rope.sets = {plain_rope(spec.rope.theta, spec.rope_dims())};
  spec.moe.num_experts = shape.num_experts;
  spec.moe.top_k = shape.top_k;
  spec.moe.intermediate_size = shape.expert_width;
  spec.moe.shared_width = shape.shared_width;
  spec.moe.shared_is_gated = shape.shared_is_gated;
  spec.moe.gate = shape.gate;
  spec.layers.assign(static_cast<std::size_t>(num_layers), LayerKind::moe);
  return spec;
}

}  // namespace metro
