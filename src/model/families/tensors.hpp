// Tensors that families share: each function appends the datasets of one part of a layer to a family's list, from the
// Hugging Face tensors "model.layers.N.<module>.weight". A family says only what is different in it.
#pragma once

#include "model/family.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

using TensorSources = std::vector<TensorSource>;

// One dataset that is one tensor.
TensorSource single_tensor(std::string dataset, std::vector<std::int64_t> shape, std::string part);

// "model.layers.N.<name>".
std::string name_in_layer(std::int64_t layer, const std::string& name);

// The dataset `name` of a layer (checkpoint/layout.hpp), from the tensor `part` of that layer.
void append_tensor(std::int64_t layer, const char* name, std::vector<std::int64_t> shape, const std::string& part,
                   TensorSources& sources);

// Likewise a linear layer [out, in], `module` of that layer. It may be stored as int8.
void append_linear(std::int64_t layer, const char* name, std::int64_t out, std::int64_t in, const std::string& module,
                   TensorSources& sources);

// The bias [out] of that linear layer, "<module>.bias"; or of a norm.
void append_bias(std::int64_t layer, const char* name, std::int64_t out, const std::string& module,
                 TensorSources& sources);

// A norm [H] as the spec has it, `module` of that layer.
void append_norm(const ModelSpec& spec, std::int64_t layer, const char* name, const std::string& module,
                 TensorSources& sources);

// Both norms [H], q, k, v and o, and where the spec has them their biases and the norms of queries and keys.
void append_attention(const ModelSpec& spec, std::int64_t layer, TensorSources& sources);

// The MLP of a dense layer, "mlp".
void append_dense_mlp(const ModelSpec& spec, std::int64_t layer, TensorSources& sources);

// What the tensors of experts are called below "model.layers.N.": "<module>.gate" is the router,
// "<module>.experts.E.<gate>" an expert's.
struct ExpertNames {
  const char* module = "mlp";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};
// As Mixtral was published, and what followed it.
inline constexpr ExpertNames block_sparse_names{.module = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
void append_experts(const ModelSpec& spec, std::int64_t layer, const ExpertNames& names, TensorSources& sources);

// The shared expert, `module` ("mlp.shared_expert"), and its gate, "<module>_gate", where the spec has one.
void append_shared_expert(const ModelSpec& spec, std::int64_t layer, const std::string& module, TensorSources& sources);

// The whole list: embedding, each layer by append_layer, last norm, and the head unless it is tied.
using AppendLayer = void (*)(const ModelSpec& spec, std::int64_t layer, TensorSources& sources);
TensorSources tensors_of_layers(const ModelSpec& spec, AppendLayer append_layer);
// Where each layer is attention and experts of block_sparse_names.
TensorSources block_sparse_tensors(const ModelSpec& spec);

}  // namespace metro
