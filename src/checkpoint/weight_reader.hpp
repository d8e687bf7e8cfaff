// Where the tensors of a model come from, as the decoder sees it: a checkpoint file, or weights made in memory.
#pragma once

#include "base/digest.hpp"
#include "base/stored_type.hpp"
#include "model/model_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace metro {

struct TensorInfo {
  std::string dataset;
  StoredType type = StoredType::bf16;
  std::vector<std::int64_t> shape;
  bool is_expert_tensor = false;  // the leading axis is the expert: digests and reads are per expert
  std::vector<Digest> digests;    // one, or one per expert for expert tensors
  std::int64_t file_offset = 0;   // of the first byte; the rest follow without gaps
  std::int64_t num_elements() const;
  std::int64_t num_bytes() const { return num_elements() * bytes_of(type); }
};

class WeightReader {
 public:
  virtual ~WeightReader() = default;

  virtual const ModelSpec& spec() const = 0;
  // By dataset name; the scales of an int8 dataset are a tensor of their own (layout::scale_of()).
  virtual const std::map<std::string, TensorInfo>& tensors() const = 0;
  const TensorInfo& info(const std::string& dataset) const;  // throws Bug if there is none

  // A whole tensor, row-major as stored, into `out` (exactly num_bytes). Throws Error(checkpoint) naming the tensor if
  // it cannot be read or is damaged.
  virtual void read_tensor(const std::string& dataset, std::span<std::byte> out) = 0;

  // Expert `expert` of an expert tensor: shape[1:] elements.
  virtual void read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) = 0;

  // Tensor bytes that this object has read so far.
  virtual std::int64_t bytes_read() const = 0;
};

}  // namespace metro
