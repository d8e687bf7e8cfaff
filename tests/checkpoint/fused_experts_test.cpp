// Converting experts that lie in one tensor for all of them, transposed and with gate and up in turns (gpt-oss),
// against a plain restatement of where every element must come to lie.
#include "checkpoint/checkpoint_reader.hpp"

#include "base/stored_type.hpp"
#include "checkpoint/folders.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

using metro::CheckpointReader;
using metro::convert_checkpoint;
using metro::ConvertedWeights;
using metro::ExitCode;
using metro::StoredType;
using metro::test::convert_into;
using metro::test::RawTensor;
using metro::test::RawTensors;
using metro::test::read_bytes;
using metro::test::read_folder;
using metro::test::ScratchFolder;

namespace {

const std::string gpt_oss = metro::test::families + "gpt_oss";

// 9 experts of width 34, hidden size 72, as its config.json says.
constexpr std::size_t num_experts = 9;
constexpr std::size_t width = 34;
constexpr std::size_t hidden = 72;

std::uint16_t word(const RawTensor& tensor, std::size_t idx) {
  std::uint16_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + 2 * idx, sizeof value);
  return value;
}

std::vector<std::uint16_t> words(const std::string& bytes) {
  std::vector<std::uint16_t> values(bytes.size() / 2);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The column of gate_up_proj, or the element of its bias, that output row `row` of the dataset is.
std::size_t fused_column(std::size_t row) {
  return row < width ? 2 * row : 2 * (row - width) + 1;
}

struct ExpectedExperts {
  std::vector<std::uint16_t> gate_up, gate_up_bias, down, down_bias;
};

ExpectedExperts expected_experts(const RawTensors& tensors, const std::string& prefix) {
  ExpectedExperts expected;
  const RawTensor& gate_up = tensors.at(prefix + "gate_up_proj");
  const RawTensor& down = tensors.at(prefix + "down_proj");
  for (std::size_t expert = 0; expert < num_experts; ++expert) {
    for (std::size_t row = 0; row < 2 * width; ++row) {
      for (std::size_t k = 0; k < hidden; ++k) {
        expected.gate_up.push_back(word(gate_up, (expert * hidden + k) * 2 * width + fused_column(row)));
      }
      expected.gate_up_bias.push_back(
          word(tensors.at(prefix + "gate_up_proj_bias"), expert * 2 * width + fused_column(row)));
    }
    for (std::size_t row = 0; row < hidden; ++row) {
      for (std::size_t k = 0; k < width; ++k) {
        expected.down.push_back(word(down, (expert * width + k) * hidden + row));
      }
    }
  }
  expected.down_bias = words(tensors.at(prefix + "down_proj_bias").bytes);
  return expected;
}

}  // namespace

TEST_CASE("fused experts lie in a checkpoint as those of other families do") {
  const ScratchFolder scratch;
  const RawTensors tensors = read_folder(gpt_oss);

  CheckpointReader reader(convert_into(scratch, gpt_oss));

  for (const std::string layer : {"0", "1", "2", "3"}) {
    CAPTURE(layer);
    const ExpectedExperts expected = expected_experts(tensors, "model.layers." + layer + ".mlp.experts.");
    const std::string to = "/layers/00" + layer + "/experts/";
    CHECK(words(read_bytes(reader, to + "gate_up")) == expected.gate_up);
    CHECK(words(read_bytes(reader, to + "gate_up_bias")) == expected.gate_up_bias);
    CHECK(words(read_bytes(reader, to + "down")) == expected.down);
    CHECK(words(read_bytes(reader, to + "down_bias")) == expected.down_bias);
  }
}

TEST_CASE("an expert of a fused tensor has a digest of its own and is read alone") {
  const ScratchFolder scratch;
  const RawTensors tensors = read_folder(gpt_oss);
  CheckpointReader reader(convert_into(scratch, gpt_oss));
  const ExpectedExperts expected = expected_experts(tensors, "model.layers.2.mlp.experts.");

  std::vector<std::uint16_t> expert(2 * width * hidden);
  reader.read_expert("/layers/002/experts/gate_up", 5, std::as_writable_bytes(std::span(expert)));

  CHECK(reader.info("/layers/002/experts/gate_up").digests.size() == num_experts);
  CHECK(reader.info("/layers/002/experts/down_bias").digests.size() == num_experts);
  CHECK(std::equal(expert.begin(), expert.end(), expected.gate_up.begin() + 5 * std::ssize(expert)));
}

TEST_CASE("converting fused experts in small chunks gives the same file as in large ones") {
  const ScratchFolder scratch;
  const ConvertedWeights weights = GENERATE(ConvertedWeights::stored, ConvertedWeights::int8);

  convert_checkpoint(gpt_oss, scratch.file("small"), false, nullptr, weights, 92);
  convert_checkpoint(gpt_oss, scratch.file("large"), false, nullptr, weights);

  CHECK(metro::read_file(scratch.file("small"), ExitCode::input) ==
        metro::read_file(scratch.file("large"), ExitCode::input));
}

TEST_CASE("the scales of int8 experts are of their output channels, also where the folder holds them transposed") {
  const ScratchFolder scratch;
  const RawTensors tensors = read_folder(gpt_oss);
  const ExpectedExperts expected = expected_experts(tensors, "model.layers.1.mlp.experts.");

  CheckpointReader reader(convert_into(scratch, gpt_oss, ConvertedWeights::int8));

  const std::string scale_bytes = read_bytes(reader, "/layers/001/experts/down_scale");
  std::vector<float> scales(scale_bytes.size() / sizeof(float));
  std::memcpy(scales.data(), scale_bytes.data(), scale_bytes.size());
  REQUIRE(scales.size() == num_experts * hidden);
  std::size_t num_wrong = 0;
  for (std::size_t row = 0; row < scales.size(); ++row) {
    float largest = 0.0F;
    for (std::size_t k = 0; k < width; ++k) {
      largest = std::max(largest, std::abs(metro::widen_bf16(expected.down[row * width + k])));
    }
    num_wrong += scales[row] == largest / 127.0F ? 0U : 1U;
  }
  CHECK(num_wrong == 0);
  CHECK(reader.info("/layers/001/experts/down_bias").type == StoredType::bf16);
}

TEST_CASE("a fused tensor that is missing or of another shape is named") {
  const ScratchFolder scratch;
  const ScratchFolder folder;
  std::filesystem::copy(gpt_oss + "/config.json", folder.path());
  RawTensors tensors = read_folder(gpt_oss);
  const auto expect_refusal = [&](std::initializer_list<const char*> texts) {
    metro::test::write_safetensors(folder.file("model.safetensors"), tensors);
    metro::test::expect_error(ExitCode::checkpoint, texts, [&] {
      convert_checkpoint(folder.path().string(), scratch.file("out.h5"), false, nullptr);
    });
    CHECK(metro::test::files_in(scratch).empty());
  };

  std::swap(tensors.at("model.layers.1.mlp.experts.gate_up_proj").shape[1],
            tensors.at("model.layers.1.mlp.experts.gate_up_proj").shape[2]);
  expect_refusal({"model.layers.1.mlp.experts.gate_up_proj has shape [9, 68, 72]", "asks for [9, 72, 68]"});

  tensors.erase("model.layers.0.mlp.experts.down_proj_bias");
  expect_refusal({"model.layers.0.mlp.experts.down_proj_bias is missing", "/layers/000/experts/down_bias"});
}
