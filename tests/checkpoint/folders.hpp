// Hugging Face folders to convert, and the tensors that a checkpoint made of them must hold.
#pragma once

#include "base/file.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/inspect.hpp"
#include "checkpoint/safetensors_text.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
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

// What every dataset of a Qwen3-MoE checkpoint must hold: the bytes of its parts, by the names of Hugging Face. Every
// tensor must be part of one.
inline std::map<std::string, std::string> datasets_of(const ModelSpec& spec, RawTensors tensors) {
  const auto take = [&](const std::string& name) {
    CAPTURE(name);
    const auto found = tensors.find(name);
    REQUIRE(found != tensors.end());
    std::string bytes = found->second.bytes;
    tensors.erase(found);
    return bytes;
  };
  std::map<std::string, std::string> datasets;
  datasets["/embed"] = take("model.embed_tokens.weight");
  datasets["/norm"] = take("model.norm.weight");
  if (!spec.tied_embeddings) {
    datasets["/lm_head"] = take("lm_head.weight");
  }
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const std::string to = "/layers/00" + std::to_string(layer) + "/";
    const std::string from = "model.layers." + std::to_string(layer) + ".";
    datasets[to + "attention/norm"] = take(from + "input_layernorm.weight");
    for (const std::string name : {"q", "k", "v", "o"}) {
      datasets[to + "attention/" + name] = take(from + "self_attn." + name + "_proj.weight");
    }
    datasets[to + "attention/q_norm"] = take(from + "self_attn.q_norm.weight");
    datasets[to + "attention/k_norm"] = take(from + "self_attn.k_norm.weight");
    datasets[to + "mlp_norm"] = take(from + "post_attention_layernorm.weight");
    if (spec.layers[layer] == LayerKind::dense) {
      datasets[to + "dense/gate_up"] = take(from + "mlp.gate_proj.weight") + take(from + "mlp.up_proj.weight");
      datasets[to + "dense/down"] = take(from + "mlp.down_proj.weight");
      continue;
    }
    datasets[to + "gate"] = take(from + "mlp.gate.weight");
    for (std::int64_t expert = 0; expert < spec.moe.num_experts; ++expert) {
      const std::string of_expert = from + "mlp.experts." + std::to_string(expert) + ".";
      datasets[to + "experts/gate_up"] += take(of_expert + "gate_proj.weight") + take(of_expert + "up_proj.weight");
      datasets[to + "experts/down"] += take(of_expert + "down_proj.weight");
    }
  }
  CHECK(tensors.empty());
  return datasets;
}

// Converts into the scratch folder and returns the path of the checkpoint.
inline std::string convert_into(const ScratchFolder& scratch, const std::string& folder,
                                ConvertedWeights weights = ConvertedWeights::stored) {
  const std::string path = scratch.file("model.h5");
  convert_checkpoint(folder, path, true, nullptr, weights);
  return path;
}

inline std::string read_bytes(const CheckpointReader& reader, const std::string& dataset) {
  std::string bytes(static_cast<std::size_t>(reader.info(dataset).num_bytes()), '\0');
  reader.read_tensor(dataset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// What `metro inspect` says of a checkpoint.
inline std::string inspect(const std::string& path, bool verify = true) {
  const ScratchFolder scratch;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(scratch.file("text").c_str(), "w"), std::fclose);
  REQUIRE(out != nullptr);
  CheckpointReader reader(path);
  inspect_checkpoint(reader, verify, out.get());
  return read_file(scratch.file("text"), ExitCode::input);
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
