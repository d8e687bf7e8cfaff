// Checkpoints (HDF5): the smallest model there is, with changed bytes (hdf5_patches.hpp). Its structure is read, and
// every tensor against its digests.
#include "base/file.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_patches.hpp"
#include "model/family.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <vector>

namespace metro::fuzz {

namespace {

constexpr const char* config =
    R"({"model_type":"qwen3_moe","hidden_size":2,"num_hidden_layers":1,"num_attention_heads":1,
"num_key_value_heads":1,"head_dim":2,"hidden_act":"silu","num_experts":2,"num_experts_per_tok":1,
"moe_intermediate_size":1,"intermediate_size":1,"decoder_sparse_step":1,"mlp_only_layers":[],"norm_topk_prob":true,
"max_position_embeddings":8,"rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":false,"vocab_size":4,
"eos_token_id":3,"torch_dtype":"float32"})";

// All weights are 0: a header, and as many bytes as it needs.
std::string safetensors_of(const ModelSpec& spec) {
  std::vector<std::string> entries;
  std::int64_t end = 0;
  for (const TensorSource& source : tensor_sources(spec)) {
    const std::vector<std::int64_t> shape = part_shape(source);
    const std::int64_t num_bytes = std::accumulate(shape.begin(), shape.end(), std::int64_t{4}, std::multiplies<>());
    for (const std::string& name : source.parts) {
      entries.push_back(fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})", name, shape, end,
                                    end + num_bytes));
      end += num_bytes;
    }
  }
  const std::string header = fmt::format("{{{}}}", fmt::join(entries, ","));
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size() & 0xff);
  length[1] = static_cast<char>(header.size() >> 8);
  return length + header + std::string(static_cast<std::size_t>(end), '\0');
}

std::string valid_file() {
  put_file(scratch().file("config.json"), config);
  put_file(scratch().file("model.safetensors"), safetensors_of(parse_model_spec(config, std::nullopt)));
  const std::string path = scratch().file("valid.h5");
  convert_checkpoint(scratch().path().string(), path, true, {});
  return read_file(path, ExitCode::checkpoint);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string valid = valid_file();
  static const std::string path = scratch().file("changed.h5");
  put_file(path, patched(valid, as_text(data, size)));
  expect_error_at_most([] {
    CheckpointReader reader(path);
    for (const auto& [name, tensor] : reader.tensors()) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.num_bytes()));
      reader.read_tensor(name, bytes);
    }
    for (const std::string& name : reader.source_file_names()) {
      reader.source_file(name);
    }
  });
  return 0;
}

}  // namespace metro::fuzz
