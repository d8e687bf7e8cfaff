// Parts of config.json and of the tensor list that families share. Every size is bounded so that products of sizes,
// in bytes, fit 64 bits, and so that a hostile file cannot make us build a tensor list that fills the memory.
#pragma once

#include "model/config_fields.hpp"
#include "model/family.hpp"
#include "model/rope_scaling.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metro {

// num_layers, hidden_size, vocab_size, max_positions, norm_eps, tied_embeddings, and the numbers of `attention`
// (head_dim is hidden_size / num_heads where config.json has none), score_scale of that head_dim.
void read_common_sizes(const ConfigFields& config, ModelSpec& spec);

// Theta and scaling, from either generation of field names: rope_theta and rope_scaling, or rope_parameters. Understood
// are the types default and yarn; any other, and any field that is not known, is refused by name.
struct RopeFields {
  double theta = 0.0;
  std::optional<YarnSettings> yarn;
};
RopeFields read_rope_fields(const ConfigFields& config);

// One set of angles for heads of `dims` rotated dimensions. A family with another form makes its own RopeSpec.
RopeSpec make_rope(const RopeFields& fields, std::int64_t dims);

// head_dim^-0.5.
float plain_score_scale(std::int64_t head_dim);

// num_experts, top_k and the expert width; num_layers must be known.
MoeSpec read_experts(const ConfigFields& config, const ModelSpec& spec);

// Width of a dense MLP; required when a layer is dense, 0 if absent otherwise.
std::int64_t read_dense_width(const ConfigFields& config, const ModelSpec& spec);

// One dataset that is one tensor.
TensorSource single_tensor(std::string dataset, std::vector<std::int64_t> shape, std::string part);

}  // namespace metro
