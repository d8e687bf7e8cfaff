// Parts of config.json that families share. Every size is bounded so that products of sizes,
// in bytes, fit 64 bits, and so that a hostile file cannot make us build a tensor list that fills the memory.
#pragma once

#include "model/config_fields.hpp"
#include "model/model_spec.hpp"
#include "model/rope_scaling.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace metro {

// The largest that are read; far above any model.
inline constexpr std::int64_t max_position_limit = 1 << 30;
inline constexpr std::int64_t max_width = 1 << 20;  // of an MLP or an expert

// What a family assumes where config.json says nothing; 0: then the field is required.
struct CommonDefaults {
  double norm_eps = 0.0;
};

// num_layers, hidden_size, vocab_size, max_positions, norm_eps, tied_embeddings, and the numbers of `attention`
// (head_dim is hidden_size / num_heads where config.json has none), score_scale of that head_dim.
void read_common_sizes(const ConfigFields& config, ModelSpec& spec, const CommonDefaults& defaults = {});
// Parts of it, for families whose heads have other dimensions: all but `attention`; num_heads and num_kv_heads.
void read_model_sizes(const ConfigFields& config, ModelSpec& spec, const CommonDefaults& defaults = {});
void read_head_counts(const ConfigFields& config, ModelSpec& spec);

// sliding_window, how many of the newest keys a query sees; 0, all, where it is absent, null, or max_positions or more,
// which no sequence outgrows.
std::int64_t read_window(const ConfigFields& config, const ModelSpec& spec);

// Theta and scaling, from either generation of field names: rope_theta and rope_scaling, or rope_parameters. Understood
// are the types default, yarn and longrope; any other, and any field that is not known, is refused by name.
struct RopeFields {
  double theta = 0.0;
  std::optional<YarnSettings> yarn;
  std::optional<LongropeSettings> longrope;
};
RopeFields read_rope_fields(const ConfigFields& config);

// The angles of heads of `dims` rotated dimensions: one set, or two with longrope. Throws Error(checkpoint) if there
// are not as many factors of longrope as pairs of dimensions.
RopeSpec make_rope(const RopeFields& fields, std::int64_t dims);

// head_dim^-0.5.
float plain_score_scale(std::int64_t head_dim);

// num_experts, top_k and, from the field `width_name`, the expert width; num_layers must be known.
MoeSpec read_experts(const ConfigFields& config, const ModelSpec& spec, const char* width_name);

// The kinds of layers: with experts unless listed in mlp_only_layers or skipped by decoder_sparse_step. Refuses a model
// that has no layer with experts. [num_layers]
std::vector<LayerKind> read_sparse_layers(const ConfigFields& config, std::int64_t num_layers);
// All with experts. [num_layers]
std::vector<LayerKind> layers_with_experts(std::int64_t num_layers);

// Width of a dense MLP; required when a layer is dense, 0 if absent otherwise.
std::int64_t read_dense_width(const ConfigFields& config, const ModelSpec& spec);

}  // namespace metro
