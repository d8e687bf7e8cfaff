// A model that was never trained: weights made in memory, as a source for the decoder.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "model/family.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace metro {

// Random matrices of the size at which activations neither grow nor vanish; norm weights 1. The same on all ranks and
// in every process.
class RandomWeights : public WeightReader {
 public:
  // linear_type: of the experts and projections, bf16 or int8; other matrices are bf16.
  RandomWeights(ModelSpec spec, StoredType linear_type);
  // type_of: of each matrix, any type. Those of fp8 and mxfp4 are for planning: reading them is a Bug.
  RandomWeights(ModelSpec spec, const std::function<StoredType(const TensorSource&)>& type_of);

  const std::string& path() const override { return path_; }
  const ModelSpec& spec() const override { return spec_; }
  const std::map<std::string, TensorInfo>& tensors() const override { return tensors_; }

 private:
  void add(const TensorSource& source, StoredType type);
  void read_bytes(const TensorInfo& tensor, std::int64_t offset, std::span<std::byte> out) const override;

  std::string path_ = "random weights";
  ModelSpec spec_;
  std::map<std::string, TensorInfo> tensors_;
};

}  // namespace metro
