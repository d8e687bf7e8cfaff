// Slices of models with random weights: what is written is what the converter asks for.
#include "bench/slice_folder.hpp"

#include "base/file.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

using metro::ExitCode;
using metro::slice_config;
using metro::slice_tensors;
using metro::test::expect_error;
using nlohmann::json;

namespace {

std::string config_of(const std::string& family) {
  return metro::read_file(std::string(METRO_TEST_DATA) + "/families/" + family + "/config.json", ExitCode::checkpoint);
}

std::int64_t total_bytes(const std::vector<metro::SliceTensor>& tensors) {
  std::int64_t num_bytes = 0;
  for (const auto& tensor : tensors) {
    num_bytes += tensor.num_bytes();
  }
  return num_bytes;
}

}  // namespace

TEST_CASE("a slice converts, in one shard or in many, and holds what was written") {
  const std::int64_t shard_bytes = GENERATE(std::int64_t{1} << 30, std::int64_t{20000});
  const metro::test::ScratchFolder scratch;
  const std::string config = slice_config(config_of("qwen3_moe"), 1);

  const std::int64_t num_bytes = metro::write_slice(config, scratch.file("hf"), shard_bytes);
  metro::convert_checkpoint(scratch.file("hf"), scratch.file("model.h5"), false, {});

  const metro::CheckpointReader reader(scratch.file("model.h5"));
  CHECK(reader.spec().num_layers == 1);
  CHECK(num_bytes == total_bytes(slice_tensors(config)));
  std::int64_t stored_bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) {
    std::vector<std::byte> content(static_cast<std::size_t>(tensor.num_bytes()));
    reader.read_tensor(name, content);
    stored_bytes += tensor.num_bytes();
    CHECK(std::any_of(content.begin(), content.end(), [](std::byte byte) { return byte != std::byte{0}; }));
  }
  CHECK(stored_bytes == num_bytes);
}

TEST_CASE("a slice has the first layers, and one with experts at least") {
  const std::string deepseek = R"({"num_hidden_layers": 61, "first_k_dense_replace": 3})";
  const std::string gpt_oss = R"({"num_hidden_layers": 3, "layer_types": ["a", "b", "a"]})";

  CHECK(json::parse(slice_config(deepseek, 2)) == json{{"num_hidden_layers", 2}, {"first_k_dense_replace", 1}});
  CHECK(json::parse(slice_config(deepseek, 9)) == json{{"num_hidden_layers", 9}, {"first_k_dense_replace", 3}});
  CHECK(json::parse(slice_config(gpt_oss, 2)) == json{{"num_hidden_layers", 2}, {"layer_types", {"a", "b"}}});
}

TEST_CASE("a slice of more layers than the model has is refused, and a folder that is there already") {
  const metro::test::ScratchFolder scratch;
  const std::string config = config_of("qwen3_moe");

  expect_error(ExitCode::usage, {"--layers 3", "from 1 to 2"}, [&] { slice_config(config, 3); });
  expect_error(ExitCode::usage, {"--layers 0", "from 1 to 2"}, [&] { slice_config(config, 0); });
  expect_error(ExitCode::checkpoint, {"config.json: must be a JSON object"}, [] { slice_config("[", 1); });
  metro::write_slice(config, scratch.file("hf"));
  expect_error(ExitCode::usage, {"hf: cannot be made: it is there already"},
               [&] { metro::write_slice(config, scratch.file("hf")); });
}
