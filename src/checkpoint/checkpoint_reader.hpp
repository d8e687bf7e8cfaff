// Reads a checkpoint: an HDF5 file written by `metro convert` (docs/formats.md). Each rank opens it for itself and
// reads only what it needs; every read is counted and its digest is verified.
#pragma once

#include "base/digest.hpp"
#include "checkpoint/weight_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

class CheckpointReader : public WeightReader {
 public:
  static constexpr std::int64_t default_max_read_bytes = std::int64_t{1} << 30;

  // Opens and checks structure: format, version, family, every dataset of the family present with its shape,
  // those with scales beside them with these.
  // Throws Error(checkpoint) naming the file and what is wrong. HDF5 is used in here only and left again: all later
  // reads are plain preads of at most `max_read_bytes` each (Linux moves no more than 2 GiB in one call).
  explicit CheckpointReader(const std::string& path, std::int64_t max_read_bytes = default_max_read_bytes);
  ~CheckpointReader() override;

  const std::string& path() const override;
  const std::string& producer() const;  // program and version that wrote the file
  const ModelSpec& spec() const override;
  const std::map<std::string, TensorInfo>& tensors() const override;

  // Original bytes of a file of the Hugging Face folder ("config.json", "tokenizer.json", ...), if it was there.
  // Throws Error(checkpoint) when they do not have their digest.
  std::optional<std::string> source_file(const std::string& name) const;
  std::vector<std::string> source_file_names() const;

  // Digest of the whole checkpoint: of all tensor digests and source files. Equal on all ranks or they refuse to start.
  Digest digest() const;

 private:
  void read_bytes(const TensorInfo& tensor, std::int64_t offset, std::span<std::byte> out) const override;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
