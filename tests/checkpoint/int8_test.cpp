// Checkpoints with int8 weights: what they hold, what `metro inspect` says of them, and every way to be wrong.
#include "base/file.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/hdf5_edits.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

using Catch::Matchers::Contains;
using metro::CheckpointReader;
using metro::convert_checkpoint;
using metro::ConvertedWeights;
using metro::ExitCode;
using metro::StoredType;
using metro::test::convert_into;
using metro::test::edit;
using metro::test::EditableFolder;
using metro::test::expect_error;
using metro::test::expect_unreadable;
using metro::test::inspect;
using metro::test::read_bytes;
using metro::test::ScratchFolder;

namespace {

bool becomes_int8(const std::string& dataset) {
  for (const char* name : {"/attention/q", "/attention/k", "/attention/v", "/attention/o", "/experts/gate_up",
                           "/experts/down", "/dense/gate_up", "/dense/down"}) {
    if (dataset.ends_with(name)) {
      return true;
    }
  }
  return false;
}

// Weights of a folder, all of one type.
std::vector<double> numbers_of(const std::string& bytes, bool is_bf16) {
  std::vector<double> numbers;
  const std::size_t size = is_bf16 ? 2 : 4;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    float number = 0.0F;
    std::memcpy(reinterpret_cast<char*>(&number) + 4 - size, bytes.data() + at, size);
    numbers.push_back(static_cast<double>(number));
  }
  return numbers;
}

struct Int8Bytes {
  std::string integers, scales;
};

// The rule of docs/formats.md in double precision; of a quotient of floats, rounding to double first changes nothing.
Int8Bytes quantised(const std::vector<double>& weights, std::int64_t row_length) {
  Int8Bytes bytes;
  for (auto row = weights.begin(); row != weights.end(); row += row_length) {
    double most = 0.0;
    for (std::int64_t k = 0; k < row_length; ++k) {
      most = std::max(most, std::abs(row[k]));
    }
    const auto scale = static_cast<float>(most / 127.0);
    bytes.scales.append(reinterpret_cast<const char*>(&scale), 4);
    for (std::int64_t k = 0; k < row_length; ++k) {
      const auto quotient = static_cast<float>(row[k] / static_cast<double>(scale));
      bytes.integers += static_cast<char>(std::lround(std::nearbyint(static_cast<double>(quotient))));
    }
  }
  return bytes;
}

std::int64_t version_of(const std::string& path) {
  std::int64_t version = 0;
  edit(path, [&](hid_t file) {
    const hid_t attribute = H5Aopen(file, "version", H5P_DEFAULT);
    REQUIRE(H5Aread(attribute, H5T_NATIVE_INT64, &version) >= 0);
    REQUIRE(H5Aclose(attribute) >= 0);
  });
  return version;
}

}  // namespace

TEST_CASE("an int8 checkpoint holds experts, projections and dense MLPs by the rule, and all else as it was") {
  const std::string folder = GENERATE(metro::test::families + "qwen3_moe", metro::test::dense_and_moe,
                                      metro::test::sharded, metro::test::tiny);
  CAPTURE(folder);
  const ScratchFolder scratch;
  const auto tensors = metro::test::read_folder(folder);
  const bool is_bf16 = tensors.begin()->second.dtype == "BF16";

  CheckpointReader reader(convert_into(scratch, folder, ConvertedWeights::int8));

  std::size_t num_int8 = 0;
  for (const auto& [dataset, bytes] : metro::test::datasets_of(reader.spec(), tensors)) {
    CAPTURE(dataset);
    const metro::TensorInfo& info = reader.info(dataset);
    if (!becomes_int8(dataset)) {
      CHECK(info.type == (is_bf16 ? StoredType::bf16 : StoredType::f32));
      CHECK(read_bytes(reader, dataset) == bytes);
      continue;
    }
    ++num_int8;
    const metro::TensorInfo& scales = reader.info(dataset + "_scale");
    CHECK(info.type == StoredType::int8);
    CHECK(scales.type == StoredType::f32);
    CHECK(scales.shape == std::vector<std::int64_t>(info.shape.begin(), info.shape.end() - 1));
    CHECK(scales.digests.size() == info.digests.size());
    const Int8Bytes expected = quantised(numbers_of(bytes, is_bf16), info.shape.back());
    CHECK(read_bytes(reader, dataset) == expected.integers);
    CHECK(read_bytes(reader, dataset + "_scale") == expected.scales);
  }
  CHECK(reader.tensors().size() ==
        metro::test::datasets_of(reader.spec(), metro::test::read_folder(folder)).size() + num_int8);
}

TEST_CASE("weights and scales of an int8 expert are read alone") {
  const ScratchFolder scratch;
  CheckpointReader reader(convert_into(scratch, metro::test::dense_and_moe, ConvertedWeights::int8));
  const std::string weights = read_bytes(reader, "/layers/001/experts/down");
  const std::string scales = read_bytes(reader, "/layers/001/experts/down_scale");
  const std::int64_t before = reader.bytes_read();
  std::string expert(68 * 36, '\0');
  std::string expert_scales(68 * 4, '\0');

  reader.read_expert("/layers/001/experts/down", 7, std::as_writable_bytes(std::span(expert)));
  reader.read_expert("/layers/001/experts/down_scale", 7, std::as_writable_bytes(std::span(expert_scales)));

  CHECK(expert == weights.substr(7 * expert.size(), expert.size()));
  CHECK(expert_scales == scales.substr(7 * expert_scales.size(), expert_scales.size()));
  CHECK(reader.bytes_read() - before == 68 * 36 + 68 * 4);
}

TEST_CASE("only files with int8 weights have version 2") {
  const ScratchFolder scratch;

  CHECK(version_of(convert_into(scratch, metro::test::sharded)) == 1);
  CHECK(version_of(convert_into(scratch, metro::test::sharded, ConvertedWeights::int8)) == 2);
}

TEST_CASE("an int8 conversion in small chunks, down to less than a row, gives the same file as in large ones") {
  const std::int64_t chunk_bytes = GENERATE(4, 300, 5000);
  const ScratchFolder scratch;
  std::vector<metro::ConvertProgress> reports;

  const metro::ConvertSummary summary = convert_checkpoint(
      metro::test::dense_and_moe, scratch.file("small"), false,
      [&](const metro::ConvertProgress& progress) { reports.push_back(progress); }, ConvertedWeights::int8,
      chunk_bytes);
  convert_checkpoint(metro::test::dense_and_moe, scratch.file("large"), false, nullptr, ConvertedWeights::int8);

  CHECK(metro::read_file(scratch.file("small"), ExitCode::input) ==
        metro::read_file(scratch.file("large"), ExitCode::input));
  CHECK(reports.back().bytes_done == summary.num_bytes);
  CHECK(reports.back().bytes_total == summary.num_bytes);
}

TEST_CASE("fp16 weights and parts of different types are quantised from the numbers they stand for") {
  EditableFolder folder;
  const ScratchFolder scratch;
  auto& q = folder.tensors.at("model.layers.0.self_attn.q_proj.weight");
  std::string halves;
  for (std::size_t i = 0; i < q.bytes.size() / 4; ++i) {  // 1 + i % 128 / 128, as fp16 and as fp32
    const auto half = static_cast<std::uint16_t>(0x3c00 + i % 128 * 8);
    const float number = 1.0F + static_cast<float>(i % 128) / 128.0F;
    halves.append(reinterpret_cast<const char*>(&half), 2);
    std::memcpy(q.bytes.data() + 4 * i, &number, 4);
  }
  CheckpointReader from_f32(convert_into(scratch, folder.write(), ConvertedWeights::int8));
  const std::string expected = read_bytes(from_f32, "/layers/000/attention/q");
  const std::string expected_scales = read_bytes(from_f32, "/layers/000/attention/q_scale");
  q.dtype = "F16";
  q.bytes = halves;

  const metro::ConvertSummary summary =
      convert_checkpoint(folder.write(), scratch.file("f16.h5"), false, nullptr, ConvertedWeights::int8);

  CheckpointReader from_f16(scratch.file("f16.h5"));
  CHECK(read_bytes(from_f16, "/layers/000/attention/q") == expected);
  CHECK(read_bytes(from_f16, "/layers/000/attention/q_scale") == expected_scales);
  REQUIRE(summary.notes.size() == 1);
  CHECK_THAT(summary.notes[0], Contains("quantised to int8, with a scale per output channel: ") &&
                                   Contains("model.layers.*.mlp.experts.*.up_proj.weight (18)"));
}

TEST_CASE("inspect shows int8 datasets with their scales, verified") {
  const ScratchFolder scratch;

  const std::string text = inspect(convert_into(scratch, metro::test::tiny, ConvertedWeights::int8));

  CHECK_THAT(text,
             Contains("/layers/005/experts/gate_up      [32, 128, 128]     int8   512.0 KiB  32 experts of 16.0 KiB"));
  CHECK_THAT(text,
             Contains("/layers/005/experts/gate_up_scale [32, 128]          f32     16.0 KiB  32 experts of 512 B"));
  CHECK_THAT(text, Contains("/layers/005/gate                 [32, 128]          bf16"));
  CHECK_THAT(text, Contains("verified: all 105 tensors have their digests"));  // 69 and 6 * 6 scales
}

TEST_CASE("a NaN or an infinity is refused by name and element in an int8 conversion too") {
  EditableFolder folder;
  const ScratchFolder scratch;
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity());
  std::memcpy(folder.tensors.at("model.layers.1.mlp.experts.2.up_proj.weight").bytes.data() + 4 * 1000, &bad, 4);

  expect_error(
      ExitCode::checkpoint, {"/model.safetensors: tensor model.layers.1.mlp.experts.2.up_proj.weight", "element 1000"},
      [&] { convert_checkpoint(folder.write(), scratch.file("out.h5"), false, nullptr, ConvertedWeights::int8, 64); });
  CHECK(metro::test::files_in(scratch).empty());
}

TEST_CASE("weights are converted to stored, int8 or bf16 and to nothing else") {
  CHECK(metro::converted_weights_of("stored") == ConvertedWeights::stored);
  CHECK(metro::converted_weights_of("int8") == ConvertedWeights::int8);
  expect_error(ExitCode::usage, {"convert: --weights int4: must be stored, int8 or bf16"},
               [] { metro::converted_weights_of("int4"); });
}

TEST_CASE("int8 weights without their scales, or with scales of another shape or type, are refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded, ConvertedWeights::int8);
  const char* name = "/layers/001/experts/down_scale";

  edit(path, [&](hid_t file) { metro::test::replace_dataset(file, name, H5T_IEEE_F32LE, {10, 71}, false); });
  expect_unreadable(path, {"dataset /layers/001/experts/down_scale has shape [10, 71], the model needs [10, 72]"});
  edit(path, [&](hid_t file) { REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0); });
  expect_unreadable(path, {path.c_str(), name, "missing"});
  edit(path, [](hid_t file) {
    metro::test::replace_dataset(file, "/layers/001/attention/q_scale", H5T_STD_I8LE, {120}, false);
  });
  expect_unreadable(path, {"dataset /layers/001/attention/q_scale is int8, must be f32"});
}

TEST_CASE("int8 weights in a file of version 1, or of tensors that may not be int8, are refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded, ConvertedWeights::int8);
  edit(path, [](hid_t file) { metro::test::set_integer(file, "version", 1); });
  expect_unreadable(path, {"/attention/q is int8, which files of version 1 do not have"});

  edit(path, [](hid_t file) {
    metro::test::set_integer(file, "version", 2);
    metro::test::replace_dataset(file, "/norm", H5T_STD_I8LE, {72}, false);
  });
  expect_unreadable(path, {"dataset /norm is int8, which only experts, projections and dense MLPs may be"});
}

TEST_CASE("a damaged scale is found when it is read, with dataset and expert") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::dense_and_moe, ConvertedWeights::int8);
  const std::string name = "/layers/001/experts/down_scale";
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(CheckpointReader(path).info(name).file_offset + 3 * 68 * 4);
    file.put('\x7f');
    REQUIRE(file.good());
  }
  CheckpointReader reader(path);
  std::string scales(68 * 4, '\0');

  CHECK_NOTHROW(reader.read_expert(name, 2, std::as_writable_bytes(std::span(scales))));
  expect_error(ExitCode::checkpoint, {"tensor /layers/001/experts/down_scale, expert 3,", "damaged"},
               [&] { reader.read_expert(name, 3, std::as_writable_bytes(std::span(scales))); });
}
