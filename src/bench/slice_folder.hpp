// A slice of a published model with random weights: a Hugging Face folder as its publisher would give it, with the real
// widths, heads and experts and a few layers, to try conversion and loading without the weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// A tensor of a folder.
struct SliceTensor {
  std::string name;
  std::string dtype;  // of safetensors
  std::vector<std::int64_t> shape;
  std::int64_t row_length = 1;  // inputs of the linear layer that it belongs to

  std::int64_t num_bytes() const;
};

// The config.json of a slice: the first num_layers layers, one of them with experts at least. Throws Error(checkpoint)
// for a config.json that is none, Error(usage) for more layers than the model has.
std::string slice_config(const std::string& config_json, std::int64_t num_layers);

// Its tensors, of the types in which the model is published: those of linear layers as quantization_config says, others
// bf16. Throws what parse_model_spec() throws.
std::vector<SliceTensor> slice_tensors(const std::string& config_json);

// Writes config.json, shards of about shard_bytes and their index into `folder`, which is made and must be new. Weights
// are random, and such that activations neither grow nor vanish. Throws Error(usage) or Error(machine) for files that
// cannot be written. Returns the bytes of all tensors.
std::int64_t write_slice(const std::string& config_json, const std::string& folder,
                         std::int64_t shard_bytes = std::int64_t{5} << 30);

}  // namespace metro
