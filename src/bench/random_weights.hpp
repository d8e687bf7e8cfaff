// A model that was never trained: weights made in memory, as a source for the decoder.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "model/family.hpp"

#include <cstdint>
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

  const ModelSpec& spec() const override { return spec_; }
  const std::map<std::string, TensorInfo>& tensors() const override { return tensors_; }
  void read_tensor(const std::string& dataset, std::span<std::byte> out) override;
  void read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) override;
  std::int64_t bytes_read() const override { return bytes_read_; }

 private:
  void add(const TensorSource& source, StoredType type);
  void fill(const TensorInfo& tensor, std::int64_t unit, std::span<std::byte> out);

  ModelSpec spec_;
  std::map<std::string, TensorInfo> tensors_;
  std::int64_t bytes_read_ = 0;
};

}  // namespace metro
