// Where the tensors of a model come from, as the decoder sees it: a checkpoint file, or weights made in memory.
#pragma once

#include "base/digest.hpp"
#include "base/stored_type.hpp"
#include "model/model_spec.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace metro {

// A tensor consists of *units*, each with a digest of its own: the experts of an expert tensor; else one, the whole.
struct TensorInfo {
  std::string dataset;
  StoredType type = StoredType::bf16;
  std::vector<std::int64_t> shape;
  bool is_expert_tensor = false;  // the leading axis is the expert
  std::vector<Digest> digests;    // [num_units()]; empty: there is nothing to verify
  std::int64_t file_offset = 0;   // of the first byte; the rest follow without gaps
  std::int64_t num_elements() const;
  std::int64_t num_bytes() const { return bytes_of(type, num_elements()); }
  std::int64_t num_units() const { return is_expert_tensor ? shape.front() : 1; }
  std::int64_t unit_bytes() const { return num_bytes() / num_units(); }
};

class WeightReader {
 public:
  virtual ~WeightReader() = default;

  virtual const std::string& path() const = 0;  // for messages
  virtual const ModelSpec& spec() const = 0;
  // By dataset name; the scales of a dataset that has them are a tensor of their own (layout::scale_of()).
  virtual const std::map<std::string, TensorInfo>& tensors() const = 0;
  const TensorInfo& info(const std::string& dataset) const;  // throws Bug if there is none

  // A whole tensor, row-major as stored, into `out` (exactly num_bytes). Throws Error(checkpoint) naming the tensor if
  // it cannot be read or is damaged.
  void read_tensor(const std::string& dataset, std::span<std::byte> out) const;

  // Expert `expert` of an expert tensor: shape[1:] elements.
  void read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out) const;

  // Tensor bytes that were read through this object so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 protected:
  WeightReader() = default;
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

 private:
  friend class UnitReader;
  // Bytes of `tensor` from `offset` on. Called by several threads at the same time. Throws Error(checkpoint).
  virtual void read_bytes(const TensorInfo& tensor, std::int64_t offset, std::span<std::byte> out) const = 0;

  mutable std::atomic<std::int64_t> bytes_read_ = 0;
};

// Reads one unit from front to back, in pieces of any size, so that a piece can be used while it is in the cache.
// Several may read from one WeightReader at the same time, each on a thread of its own.
class UnitReader {
 public:
  UnitReader(const WeightReader& reader, const TensorInfo& tensor, std::int64_t unit_idx);

  // The next out.size() bytes, at most bytes_left(). Throws Error(checkpoint) naming the tensor if they cannot be read,
  // or if the unit is complete with them and does not have its digest.
  void read(std::span<std::byte> out);
  std::int64_t bytes_left() const { return end_ - position_; }

 private:
  const WeightReader* reader_;
  const TensorInfo* tensor_;
  std::int64_t unit_idx_;
  std::int64_t position_, end_;  // in the tensor
  DigestStream digest_;
};

}  // namespace metro
