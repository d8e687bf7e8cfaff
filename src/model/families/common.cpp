#include "model/families/common.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace metro {

namespace {

// experts * 2 * width * hidden * 4 bytes < 2^54; heads * head_dim * hidden * 4 bytes < 2^49. Far above any model.
constexpr std::int64_t max_layers = 999;  // dataset names have three digits
constexpr std::int64_t max_hidden_size = 1 << 18;
constexpr std::int64_t max_vocab_size = 1 << 24;
constexpr std::int64_t max_position_limit = 1 << 30;
constexpr std::int64_t max_heads = 1 << 14;
constexpr std::int64_t max_head_dim = 1 << 14;
constexpr std::int64_t max_width = 1 << 20;
constexpr std::int64_t max_experts = 1 << 12;  // the digests of a layer's experts fit one attribute (64 KB)
constexpr std::int64_t max_experts_of_all_layers = 1 << 18;

void read_attention_sizes(const ConfigFields& config, ModelSpec& spec) {
  AttentionSpec& attention = spec.attention;
  attention.num_heads = config.integer({"num_attention_heads"}, {1, max_heads});
  attention.num_kv_heads = config.integer_or({"num_key_value_heads"}, {1, max_heads}, attention.num_heads);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    config.refuse("num_key_value_heads", fmt::format("must divide num_attention_heads = {}", attention.num_heads));
  }
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
  const auto parameters = config.object("rope_parameters");
  if (!parameters || !parameters->has("rope_theta")) {
    return config.positive_number("rope_theta");
  }
  const double theta = parameters->positive_number("rope_theta");
  if (config.has("rope_theta") && config.positive_number("rope_theta") != theta) {
    config.refuse("rope_theta", fmt::format("contradicts rope_parameters.rope_theta = {}", theta));
  }
  return theta;
}

// "rope_type", or "type" as it was called at first.
std::string rope_type_of(const ConfigFields& table) {
  std::string type;
  for (const char* name : {"rope_type", "type"}) {
    table.allow_only(name, {"\"default\"", "\"yarn\""});
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

void read_common_sizes(const ConfigFields& config, ModelSpec& spec) {
  spec.num_layers = config.integer({"num_hidden_layers"}, {1, max_layers});
  spec.hidden_size = config.integer({"hidden_size"}, {1, max_hidden_size});
  spec.vocab_size = config.integer({"vocab_size"}, {1, max_vocab_size});
  spec.max_positions = config.integer({"max_position_embeddings"}, {1, max_position_limit});
  const double norm_eps = config.positive_number("rms_norm_eps");
  spec.norm_eps = static_cast<float>(norm_eps);
  if (norm_eps >= 1.0 || !(spec.norm_eps > 0.0F)) {
    config.refuse("rms_norm_eps", "must lie between 0 and 1 and be a float32 above 0");
  }
  spec.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  read_attention_sizes(config, spec);
  spec.attention.score_scale = plain_score_scale(spec.attention.head_dim);
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
    if (rope_type_of(*table) == "default") {
      table->allow_only_fields({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
      continue;
    }
    if (fields.yarn) {
      config.refuse(table_name, "stands beside another scaling");
    }
    fields.yarn = read_yarn(*table);
  }
  return fields;
}

RopeSpec make_rope(const RopeFields& fields, std::int64_t dims) {
  RopeSpec rope;
  rope.theta = fields.theta;
  if (fields.yarn) {
    rope.scaling = fmt::format("yarn, {} times {} positions", fields.yarn->factor, fields.yarn->original_positions);
    rope.sets.push_back(yarn_rope(fields.theta, dims, *fields.yarn));
  } else {
    rope.sets.push_back(plain_rope(fields.theta, dims));
  }
  return rope;
}

float plain_score_scale(std::int64_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

MoeSpec read_experts(const ConfigFields& config, const ModelSpec& spec) {
  MoeSpec moe;
  moe.num_experts = config.integer({"num_experts", "num_local_experts"},
                                   {1, std::min(max_experts, max_experts_of_all_layers / spec.num_layers)});
  moe.top_k = config.integer({"num_experts_per_tok"}, {1, moe.num_experts});
  moe.intermediate_size = config.integer({"moe_intermediate_size"}, {1, max_width});
  return moe;
}

std::int64_t read_dense_width(const ConfigFields& config, const ModelSpec& spec) {
  const bool any_dense = std::find(spec.layers.begin(), spec.layers.end(), LayerKind::dense) != spec.layers.end();
  return any_dense ? config.integer({"intermediate_size"}, {1, max_width})
                   : config.integer_or({"intermediate_size"}, {1, max_width}, 0);
}

TensorSource single_tensor(std::string dataset, std::vector<std::int64_t> shape, std::string part) {
  return TensorSource{std::move(dataset), std::move(shape), {std::move(part)}, false};
}

}  // namespace metro
