// Reads a checkpoint: an HDF5 file written by `metro convert` (docs/formats.md). Each rank opens it for itself and
// reads only what it needs; every read is counted and its digest is verified.
#pragma once

#include "base/digest.hpp"
#include "base/stored_type.hpp"
#include "model/model_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

class CheckpointReader {
 public:
  static constexpr std::int64_t default_max_read_bytes = std::int64_t{1} << 30;

  // Opens and checks structure: format, version, family, every dataset of the family present with its shape.
  // Throws Error(checkpoint) naming the file and what is wrong. HDF5 is used in here only and left again: all later
  // reads are plain preads of at most `max_read_bytes` each (Linux moves no more than 2 GiB in one call).
  explicit CheckpointReader(const std::string& path, std::int64_t max_read_bytes = default_max_read_bytes);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const std::string& path() const;
  const std::string& producer() const;  // program and version that wrote the file
  const ModelSpec& spec() const;
  const std::map<std::string, TensorInfo>& tensors() const;  // by dataset name
  const TensorInfo& info(const std::string& dataset) const;  // throws Bug if there is none

  // Original bytes of a file of the Hugging Face folder ("config.json", "tokenizer.json", ...), if it was there.
  // Throws Error(checkpoint) when they do not have their digest.
  std::optional<std::string> source_file(const std::string& name) const;
  std::vector<std::string> source_file_names() const;

  // Reads a whole tensor, row-major as stored, into `out` (exactly num_bytes) and verifies its digest(s).
  // Throws Error(checkpoint) naming the tensor when the digest differs or the read fails.
  void read_tensor(const std::string& dataset, std::span<std::byte> out);

  // Reads expert `expert` of an expert tensor: shape[1:] elements.
  void read_expert(const std::string& dataset, std::int64_t expert, std::span<std::byte> out);

  // Tensor bytes read from the file by this object so far.
  std::int64_t bytes_read() const;

  // Digest of the whole checkpoint: of all tensor digests and source files. Equal on all ranks or they refuse to start.
  Digest digest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
