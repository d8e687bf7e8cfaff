// A safetensors reader and writer of the tests' own, so that the program's is not checked against itself.
#pragma once

#include "base/file.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace metro::test {

struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors read_safetensors(const std::string& path) {
  const std::string content = read_file(path, ExitCode::input);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, content.data(), 8);
  const auto header = nlohmann::json::parse(content.substr(8, header_bytes));
  RawTensors tensors;
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      const auto range = value.at("data_offsets").get<std::vector<std::size_t>>();
      tensors[name] = {value.at("dtype"), value.at("shape"),
                       content.substr(8 + header_bytes + range[0], range[1] - range[0])};
    }
  }
  return tensors;
}

// A file with this header, of this claimed length, and these bytes behind it.
inline std::string safetensors_bytes(const std::string& header, const std::string& data, std::uint64_t claimed_length) {
  std::string content(8, '\0');
  std::memcpy(content.data(), &claimed_length, 8);
  return content + header + data;
}

inline void write_safetensors(const std::string& path, const RawTensors& tensors) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  write_file_atomically(path, safetensors_bytes(text, data, text.size()));
}

}  // namespace metro::test
