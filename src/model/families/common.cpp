#include "model/families/common.hpp"

#include "base/error.hpp"
#include "model/families/longrope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace metro {

namespace {

// experts * 2 * width * hidden * 4 bytes < 2^54; heads * head_dim * hidden * 4 bytes < 2^49. Far above any model.
constexpr std::int64_t max_layers = 999;  // dataset names have three digits
constexpr std::int64_t max_hidden_size = 1 << 18;
constexpr std::int64_t max_vocab_size = 1 << 24;
constexpr std::int64_t max_heads = 1 << 14;
constexpr std::int64_t max_head_dim = 1 << 14;
constexpr std::int64_t max_experts = 1 << 12;  // the digests of a layer's experts fit one attribute (64 KB)
constexpr std::int64_t max_experts_of_all_layers = 1 << 18;

void read_head_dim(const ConfigFields& config, ModelSpec& spec) {
  AttentionSpec& attention = spec.attention;
  if (config.has("head_dim")) {
    attention.head_dim = config.integer({"head_dim"}, {1, max_head_dim});
  } else if (spec.hidden_size % attention.num_heads == 0) {
    attention.head_dim = spec.hidden_size / attention.num_heads;
  } else {
    config.refuse(
        "hidden_size",
        fmt::format("must be a multiple of num_attention_heads = {} when head_dim is not given", attention.num_heads));
  }
  if (attention.head_dim % 2 != 0 || attention.head_dim > max_head_dim) {
    config.refuse("head_dim", fmt::format("gives heads of {} elements; they must be even and at most {}",
                                          attention.head_dim, max_head_dim));
  }
}

double read_theta(const ConfigFields& config) {
  constexpr const char* name = "rope_theta";
  double theta = config.positive_number_or(name, 0.0);
  for (const char* table_name : {"rope_scaling", "rope_parameters"}) {
    const auto table = config.object(table_name);
    if (!table || !table->has(name)) {
      continue;
    }
    const double of_table = table->positive_number(name);
    if (theta > 0.0 && theta != of_table) {
      table->refuse(name, fmt::format("contradicts rope_theta = {}", theta));
    }
    theta = of_table;
  }
  if (theta == 0.0) {
    theta = config.positive_number(name);  // says that it is missing
  }
  if (theta <= 1.0) {
    throw Error(ExitCode::checkpoint, fmt::format("config.json: rope_theta = {} must be above 1", theta));
  }
  return theta;
}

// Settings each of which is a number may still give angles that are none.
void require_numbers(const RopeSpec& rope) {
  const auto is_positive = [](float value) { return std::isnormal(value) && value > 0.0F; };
  for (const RopeFactors& set : rope.sets) {
    const auto& frequencies = set.inverse_frequencies;
    if (!is_positive(set.scale) || !std::all_of(frequencies.begin(), frequencies.end(), is_positive)) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("config.json: rope_theta = {} with rope scaling {} gives angles or a "
                              "scale of them that float32 cannot hold",
                              rope.theta, rope.scaling));
    }
  }
}

// "rope_type", or "type" as it was called at first.
std::string rope_type_of(const ConfigFields& table) {
  std::string type;
  for (const char* name : {"rope_type", "type"}) {
    table.allow_only(name, {"\"default\"", "\"yarn\"", "\"longrope\"", "\"su\""});
    if (!table.has(name)) {
      continue;
    }
    if (!type.empty() && table.text(name) != type) {
      table.refuse(name, fmt::format("contradicts rope_type = {}", type));
    }
    type = table.text(name);
  }
  return type.empty() ? "default" : type;
}

YarnSettings read_yarn(const ConfigFields& table) {
  table.allow_only_fields({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "beta_fast",
                           "beta_slow", "original_max_position_embeddings", "truncate", "mscale", "mscale_all_dim",
                           "attention_factor"});
  YarnSettings yarn;
  yarn.factor = table.positive_number("factor");
  if (yarn.factor < 1.0) {
    table.refuse("factor", "must be at least 1");
  }
  yarn.beta_fast = table.positive_number_or("beta_fast", yarn.beta_fast);
  yarn.beta_slow = table.positive_number_or("beta_slow", yarn.beta_slow);
  yarn.original_positions = table.integer({"original_max_position_embeddings"}, {1, max_position_limit});
  yarn.truncates = table.boolean_or("truncate", true);
  yarn.mscale = table.positive_number_or("mscale", 0.0);
  yarn.mscale_all_dim = table.positive_number_or("mscale_all_dim", 0.0);
  yarn.attention_factor = table.positive_number_or("attention_factor", 0.0);
  return yarn;
}

}  // namespace

void read_model_sizes(const ConfigFields& config, ModelSpec& spec, const CommonDefaults& defaults) {
  spec.num_layers = config.integer({"num_hidden_layers"}, {1, max_layers});
  spec.hidden_size = config.integer({"hidden_size"}, {1, max_hidden_size});
  spec.vocab_size = config.integer({"vocab_size"}, {1, max_vocab_size});
  spec.max_positions = config.integer({"max_position_embeddings"}, {2, max_position_limit});
  const double norm_eps = defaults.norm_eps > 0.0 ? config.positive_number_or("rms_norm_eps", defaults.norm_eps)
                                                  : config.positive_number("rms_norm_eps");
  spec.norm_eps = static_cast<float>(norm_eps);
  if (norm_eps >= 1.0) {
    config.refuse("rms_norm_eps", "must lie between 0 and 1");
  }
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
}

void read_head_counts(const ConfigFields& config, ModelSpec& spec) {
  AttentionSpec& attention = spec.attention;
  attention.num_heads = config.integer({"num_attention_heads"}, {1, max_heads});
  attention.num_kv_heads = config.integer_or({"num_key_value_heads"}, {1, max_heads}, attention.num_heads);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    config.refuse("num_key_value_heads", fmt::format("must divide num_attention_heads = {}", attention.num_heads));
  }
}

void read_common_sizes(const ConfigFields& config, ModelSpec& spec, const CommonDefaults& defaults) {
  read_model_sizes(config, spec, defaults);
  read_head_counts(config, spec);
  read_head_dim(config, spec);
  spec.attention.score_scale = plain_score_scale(spec.attention.head_dim);
}

std::int64_t read_window(const ConfigFields& config, const ModelSpec& spec) {
  const std::int64_t window = config.integer_or({"sliding_window"}, {1, max_position_limit}, spec.max_positions);
  return window < spec.max_positions ? window : 0;
}

RopeFields read_rope_fields(const ConfigFields& config) {
  config.allow_only("partial_rotary_factor", {"1"});
  RopeFields fields;
  fields.theta = read_theta(config);
  for (const char* table_name : {"rope_scaling", "rope_parameters"}) {
    const auto table = config.object(table_name);
    if (!table) {
      continue;
    }
    table->allow_only("partial_rotary_factor", {"1"});
    const std::string type = rope_type_of(*table);
    if (type == "default") {
      table->allow_only_fields({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
      continue;
    }
    if (fields.yarn || fields.longrope) {
      config.refuse(table_name, "stands beside another scaling");
    }
    if (type == "yarn") {
      fields.yarn = read_yarn(*table);
    } else {
      fields.longrope = read_longrope(config, *table);
    }
  }
  return fields;
}

RopeSpec make_rope(const RopeFields& fields, std::int64_t dims) {
  RopeSpec rope;
  rope.theta = fields.theta;
  if (fields.yarn) {
    rope.scaling = fmt::format("yarn, {} times {} positions", fields.yarn->factor, fields.yarn->original_positions);
    rope.sets.push_back(yarn_rope(fields.theta, dims, *fields.yarn));
  } else if (fields.longrope) {
    set_longrope(*fields.longrope, dims, rope);
  } else {
    rope.sets.push_back(plain_rope(fields.theta, dims));
  }
  require_numbers(rope);
  return rope;
}

float plain_score_scale(std::int64_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

MoeSpec read_experts(const ConfigFields& config, const ModelSpec& spec, const char* width_name) {
  MoeSpec moe;
  moe.num_experts = config.integer({"num_experts", "num_local_experts", "n_routed_experts"},
                                   {1, std::min(max_experts, max_experts_of_all_layers / spec.num_layers)});
  moe.top_k = config.integer({"num_experts_per_tok", "experts_per_token"}, {1, moe.num_experts});
  moe.intermediate_size = config.integer({width_name}, {1, max_width});
  return moe;
}

std::vector<LayerKind> read_sparse_layers(const ConfigFields& config, std::int64_t num_layers) {
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

std::vector<LayerKind> layers_with_experts(std::int64_t num_layers) {
  return std::vector<LayerKind>(static_cast<std::size_t>(num_layers), LayerKind::moe);
}

std::int64_t read_dense_width(const ConfigFields& config, const ModelSpec& spec) {
  const bool any_dense = std::find(spec.layers.begin(), spec.layers.end(), LayerKind::dense) != spec.layers.end();
  return any_dense ? config.integer({"intermediate_size"}, {1, max_width})
                   : config.integer_or({"intermediate_size"}, {1, max_width}, 0);
}

}  // namespace metro
