// Parts of config.json and of the tensor list that families share. Every size is bounded so that products of sizes,
// in bytes, fit 64 bits, and so that a hostile file cannot make us build a tensor list that fills the memory.
#pragma once

#include "model/config_fields.hpp"
#include "model/family.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// num_layers, hidden_size, vocab_size, max_positions, norm_eps, tied_embeddings, and the numbers of `attention`
// (head_dim is hidden_size / num_heads where config.json has none).
void read_common_sizes(const ConfigFields& config, ModelSpec& spec);

// rope_theta, from either generation of field names. Refuses every kind of scaling.
RopeSpec read_unscaled_rope(const ConfigFields& config);

// num_experts, top_k and the expert width; num_layers must be known.
MoeSpec read_experts(const ConfigFields& config, const ModelSpec& spec);

// Width of a dense MLP; required when a layer is dense, 0 if absent otherwise.
std::int64_t read_dense_width(const ConfigFields& config, const ModelSpec& spec);

// One dataset that is one tensor.
TensorSource single_tensor(std::string dataset, std::vector<std::int64_t> shape, std::string part);

}  // namespace metro
