// Weights of a Hugging Face folder: model.safetensors, or shards named by model.safetensors.index.json.
// A safetensors file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, and
// the bytes. Headers come from strangers: every number is checked against the size of the file before it is used.
#pragma once

#include "checkpoint/file_descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace metro {

struct SafetensorsEntry {
  std::string dtype;  // as in the file: "BF16", "F16", "F32", ...
  std::vector<std::int64_t> shape;
  std::int64_t file_offset = 0;  // of its first byte in the file
  std::int64_t num_bytes = 0;
  std::size_t file_idx = 0;
};

class SafetensorsFolder {
 public:
  // Reads all headers. Throws Error(checkpoint) naming the file and the tensor.
  explicit SafetensorsFolder(const std::string& folder);

  // By tensor name.
  const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }
  const std::string& path_of(const SafetensorsEntry& entry) const { return files_[entry.file_idx].path(); }

  // Fills `out` with bytes of the tensor from `offset` on; offset + out.size() may not exceed num_bytes.
  void read(const SafetensorsEntry& entry, std::int64_t offset, std::span<std::byte> out) const;

 private:
  void add_file(const std::string& path);
  void add_shards(const std::string& folder, const std::string& index_path);

  std::vector<FileDescriptor> files_;
  std::map<std::string, SafetensorsEntry> tensors_;
};

}  // namespace metro
