// Hugging Face folders to convert, and the tensors that a checkpoint made of them must hold.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/safetensors_text.hpp"
#include "support/scratch_folder.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace metro::test {

inline const std::string families = METRO_TEST_DATA "/families/";
inline const std::string dense_and_moe = families + "qwen3_moe_mixed";  // f32, tied
inline const std::string sharded = families + "qwen3_moe_sharded_bf16";
inline const std::string tiny = METRO_SOURCE_DIR "/inputs/models/tiny";

// All tensors of all safetensors files of a folder.
inline RawTensors read_folder(const std::string& folder) {
  RawTensors tensors;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() == ".safetensors") {
      tensors.merge(read_safetensors(file.path().string()));
    }
  }
  return tensors;
}

// Converts into the scratch folder and returns the path of the checkpoint.
inline std::string convert_into(const ScratchFolder& scratch, const std::string& folder) {
  const std::string path = scratch.file("model.h5");
  convert_checkpoint(folder, path, true, nullptr);
  return path;
}

inline std::string read_bytes(CheckpointReader& reader, const std::string& dataset) {
  std::string bytes(static_cast<std::size_t>(reader.info(dataset).num_bytes()), '\0');
  reader.read_tensor(dataset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// A folder of its own with the config of dense_and_moe, whose tensors a test may change.
class EditableFolder {
 public:
  EditableFolder() : tensors(read_folder(dense_and_moe)) {
    std::filesystem::copy(dense_and_moe + "/config.json", scratch_.path());
  }
  // Writes the tensors and returns the path of the folder.
  std::string write() const {
    write_safetensors(scratch_.file("model.safetensors"), tensors);
    return scratch_.path().string();
  }
  std::string file(const std::string& name) const { return scratch_.file(name); }

  RawTensors tensors;

 private:
  ScratchFolder scratch_;
};

// Names of the files in a folder.
inline std::vector<std::string> files_in(const ScratchFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(file.path().filename().string());
  }
  return names;
}

}  // namespace metro::test
