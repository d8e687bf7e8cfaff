// The HDF5 side of a checkpoint file: groups, datasets and attributes (docs/formats.md). Tensor bytes do not pass
// through HDF5: datasets are contiguous, so they are written and read at the dataset's offset in the file.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace metro {

struct SourceFile {
  std::string name;
  std::string content;
};

// Creates `path` (which may exist and is then emptied) with everything but the tensor bytes: root attributes, source
// files with their digests, and a dataset for each of `tensors` with room for its bytes and zero digests. Sets
// file_offset of each tensor. Throws Error(machine) when writing fails.
void create_structure(const std::string& path, const std::string& family, const std::string& producer,
                      const std::vector<SourceFile>& source_files, std::vector<TensorInfo>& tensors);

// Puts the digests of `tensors` into a file made by create_structure. Throws Error(machine) when writing fails.
void write_digests(const std::string& path, const std::vector<TensorInfo>& tensors);

// Where a source file lies.
struct SourceInfo {
  std::int64_t file_offset = 0;
  std::int64_t num_bytes = 0;
  Digest digest = 0;
};

// An open checkpoint file, read-only. Every method throws Error(checkpoint) naming the file and the object.
class StructureReader {
 public:
  // `file_bytes` is the size of the file; nothing may lie beyond.
  StructureReader(const std::string& path, std::int64_t file_bytes);
  ~StructureReader();
  StructureReader(const StructureReader&) = delete;
  StructureReader& operator=(const StructureReader&) = delete;

  // Attributes of the root group.
  std::string text_attribute(const std::string& name) const;
  std::int64_t integer_attribute(const std::string& name) const;

  std::vector<std::string> source_file_names() const;
  SourceInfo source_file(const std::string& name) const;

  // Shape, type, offset and digests of a dataset, which must have this shape and lie in one piece inside the file.
  TensorInfo tensor(const std::string& dataset, const std::vector<std::int64_t>& shape, bool is_expert_tensor) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
