// A model family: how its config.json and its tensors map to a ModelSpec and to the datasets of a checkpoint.
// One file in families/ states what is special about a family; register it in family.cpp.
#pragma once

#include "model/model_spec.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

// How the parts of a dataset lie in their files where that is not how the dataset holds them. A matrix here is
// [rows, columns] in the dataset, a vector has one column; with all experts in a part there is one of each expert.
struct PartOrder {
  bool holds_all_experts = false;  // one part has all experts along its leading axis; else each part is of one expert
  bool is_transposed = false;      // the matrix lies as [columns, rows]
  bool is_interleaved = false;     // the first half of the dataset's rows are even in the file, the second half odd
};

// One dataset of the checkpoint and the Hugging Face tensors it is made of: `parts`, stacked along the leading axis in
// order (once in the dataset's order, their bytes follow each other). The product of `shape` is the number of elements
// of all parts together.
struct TensorSource {
  std::string dataset;              // for example "/layers/003/experts/gate_up"
  std::vector<std::int64_t> shape;  // for example [E, 2F, H]
  std::vector<std::string> parts;   // for example {"model.layers.3.mlp.experts.0.gate_proj.weight", ...}
  bool per_expert = false;          // leading axis is the expert: digests and reads are per expert
  bool may_be_quantised = false;  // int8, fp8, mxfp4: a linear layer [out, in] or one per expert, not router, not head
  PartOrder order = {};           // of every part
};

// Reads config.json (both generations of field names) and, where given, generation_config.json (its eos_token_id, an
// integer or a list, wins over config.json's; null counts as absent). Throws Error(checkpoint) naming the field, its
// value and what is supported: unknown model_type, missing field, any field that would change the maths and is not
// implemented.
ModelSpec parse_model_spec(std::string_view config_json, std::optional<std::string_view> generation_config_json);

// All datasets of a checkpoint of this model, in file order.
std::vector<TensorSource> tensor_sources(const ModelSpec& spec);

// Shape of one matrix (or vector) of a part as the dataset holds it: without the axis of experts.
std::vector<std::int64_t> matrix_shape(const TensorSource& source);

// Shape that each part of `source` must have in its file: all parts of a dataset have the same.
std::vector<std::int64_t> part_shape(const TensorSource& source);

// model_type values that parse_model_spec accepts, for messages and docs.
std::vector<std::string> supported_families();

}  // namespace metro
