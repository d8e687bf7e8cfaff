// Reading a checkpoint: by expert, in pieces, counted; and every kind of damage is found and named.
#include "checkpoint/checkpoint_reader.hpp"

#include "base/file.hpp"
#include "base/threads.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/hdf5_edits.hpp"
#include "support/expect_error.hpp"

#include <hdf5.h>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

using metro::CheckpointReader;
using metro::ExitCode;
using metro::test::convert_into;
using metro::test::edit;
using metro::test::expect_error;
using metro::test::expect_unreadable;
using metro::test::read_bytes;
using metro::test::replace_dataset;
using metro::test::ScratchFolder;
using metro::test::set_integer;

namespace {

void flip_bit(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
  REQUIRE(file.good());
}

}  // namespace

TEST_CASE("a checkpoint says who wrote it and what model it is") {
  const ScratchFolder scratch;

  const CheckpointReader reader(convert_into(scratch, metro::test::tiny));

  CHECK(reader.path() == scratch.file("model.h5"));
  CHECK_THAT(reader.producer(), Catch::Matchers::StartsWith("metro "));
  CHECK(reader.spec().family == "qwen3_moe");
  CHECK(reader.spec().end_tokens == std::vector<std::int32_t>{2045});
  CHECK(reader.tensors().size() == 3 + 6 * 11);
}

TEST_CASE("tensors lie on pages of 4096 bytes") {
  const ScratchFolder scratch;
  const CheckpointReader reader(convert_into(scratch, metro::test::dense_and_moe));

  for (const auto& [name, tensor] : reader.tensors()) {
    CAPTURE(name);
    CHECK(tensor.file_offset % 4096 == 0);
  }
}

TEST_CASE("expert tensors have one digest per expert, other tensors one") {
  const ScratchFolder scratch;
  const CheckpointReader reader(convert_into(scratch, metro::test::dense_and_moe));

  const auto& experts = reader.info("/layers/001/experts/down");
  CHECK(experts.is_expert_tensor);
  CHECK(experts.digests.size() == 9);
  CHECK(experts.num_elements() == 9 * 68 * 36);
  CHECK(experts.num_bytes() == 4 * 9 * 68 * 36);
  CHECK_FALSE(reader.info("/layers/000/dense/down").is_expert_tensor);
  CHECK(reader.info("/layers/000/dense/down").digests.size() == 1);
}

TEST_CASE("reading an expert reads its bytes only and counts them") {
  const ScratchFolder scratch;
  CheckpointReader reader(convert_into(scratch, metro::test::tiny));
  const std::string whole = read_bytes(reader, "/layers/002/experts/gate_up");
  const std::int64_t before = reader.bytes_read();
  std::string expert(2 * 64 * 128 * 2, '\0');

  reader.read_expert("/layers/002/experts/gate_up", 31, std::as_writable_bytes(std::span(expert)));

  CHECK(before == 32 * 2 * 64 * 128 * 2);
  CHECK(reader.bytes_read() - before == static_cast<std::int64_t>(expert.size()));
  CHECK(expert == whole.substr(31 * expert.size()));
}

TEST_CASE("reads in pieces give the same bytes as reads in one go") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  CheckpointReader whole(path);
  CheckpointReader pieces(path, 100);

  for (const auto& [name, tensor] : whole.tensors()) {
    CHECK(read_bytes(pieces, name) == read_bytes(whole, name));
  }
  CHECK(pieces.source_file("config.json") == whole.source_file("config.json"));
}

TEST_CASE("a unit can be read in pieces by several threads, counted, and verified with its last byte") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::tiny);
  const CheckpointReader reader(path);
  const metro::TensorInfo& tensor = reader.info("/layers/001/experts/down");
  const std::string whole = read_bytes(reader, tensor.dataset);
  const std::int64_t before = reader.bytes_read();
  std::string in_pieces(whole.size(), '\0');

  metro::for_each_on_threads(tensor.num_units(), 3, [&](std::int64_t unit_idx, std::int64_t) {
    metro::UnitReader unit(reader, tensor, unit_idx);
    auto left = std::as_writable_bytes(std::span(in_pieces))
                    .subspan(static_cast<std::size_t>(unit_idx * tensor.unit_bytes()),
                             static_cast<std::size_t>(tensor.unit_bytes()));
    for (std::size_t piece = 1; !left.empty(); piece = std::min(3 * piece, left.size())) {
      unit.read(left.first(piece));
      left = left.subspan(piece);
    }
  });

  CHECK(in_pieces == whole);
  CHECK(reader.bytes_read() - before == static_cast<std::int64_t>(whole.size()));

  flip_bit(path, tensor.file_offset + 2 * tensor.unit_bytes() + 1);
  metro::UnitReader damaged(reader, tensor, 2);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.unit_bytes()));
  CHECK_NOTHROW(damaged.read(std::span(bytes).first(bytes.size() - 1)));
  CHECK(damaged.bytes_left() == 1);
  expect_error(ExitCode::checkpoint, {path.c_str(), "tensor /layers/001/experts/down, expert 2,", "damaged"},
               [&] { damaged.read(std::span(bytes).first(1)); });
  CHECK_THROWS_AS(damaged.read(std::span(bytes).first(1)), metro::Bug);
  CHECK_THROWS_AS(metro::UnitReader(reader, tensor, tensor.num_units()), metro::Bug);
}

TEST_CASE("a file that became shorter while it was open names the tensor that cannot be read") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::tiny);
  const CheckpointReader reader(path);
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(reader.info("/embed").file_offset + 10));

  expect_error(ExitCode::checkpoint, {"ends at byte", "truncated", "tensor /embed"},
               [&] { read_bytes(reader, "/embed"); });
}

TEST_CASE("asking for a tensor, expert or size that is not there is a bug") {
  const ScratchFolder scratch;
  CheckpointReader reader(convert_into(scratch, metro::test::sharded));
  std::vector<std::byte> expert(2 * 34 * 72 * 2);

  CHECK_THROWS_AS(reader.info("/nothing"), metro::Bug);
  CHECK_THROWS_AS(reader.read_expert("/layers/000/experts/gate_up", 10, expert), metro::Bug);
  CHECK_THROWS_AS(reader.read_expert("/layers/000/experts/gate_up", -1, expert), metro::Bug);
  CHECK_THROWS_AS(reader.read_expert("/layers/000/gate", 0, expert), metro::Bug);
  CHECK_THROWS_AS(reader.read_tensor("/norm", expert), metro::Bug);
}

TEST_CASE("a flipped bit is found and the tensor and expert named") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  const auto [norm_offset, experts_offset] = [&] {
    const CheckpointReader reader(path);
    return std::pair(reader.info("/norm").file_offset, reader.info("/layers/001/experts/down").file_offset);
  }();
  constexpr std::int64_t expert_bytes = 72 * 34 * 2;
  flip_bit(path, norm_offset + 5);
  flip_bit(path, experts_offset + 4 * expert_bytes);

  CheckpointReader reader(path);
  std::vector<std::byte> expert(expert_bytes);

  expect_error(ExitCode::checkpoint, {path.c_str(), "tensor /norm", "damaged"}, [&] { read_bytes(reader, "/norm"); });
  expect_error(ExitCode::checkpoint, {"tensor /layers/001/experts/down, expert 4,", "damaged"},
               [&] { reader.read_expert("/layers/001/experts/down", 4, expert); });
  expect_error(ExitCode::checkpoint, {"/layers/001/experts/down, expert 4,"},
               [&] { read_bytes(reader, "/layers/001/experts/down"); });
  CHECK_NOTHROW(reader.read_expert("/layers/001/experts/down", 3, expert));
}

TEST_CASE("a flipped bit in a source file is found") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::tiny);
  const std::string content = metro::read_file(path, ExitCode::input);
  const auto tokenizer_offset = content.find(metro::read_file(metro::test::tiny + "/tokenizer.json", ExitCode::input));
  const auto config_offset = content.find("\"architectures\"");
  flip_bit(path, static_cast<std::int64_t>(tokenizer_offset) + 1000);

  {
    const CheckpointReader reader(path);
    expect_error(ExitCode::checkpoint, {path.c_str(), "/source/tokenizer.json", "damaged"},
                 [&] { static_cast<void>(reader.source_file("tokenizer.json")); });
  }
  flip_bit(path, static_cast<std::int64_t>(config_offset));
  expect_unreadable(path, {"/source/config.json", "damaged"});
}

TEST_CASE("the digest of a checkpoint depends on weights and source files, not on the path") {
  metro::test::EditableFolder folder;
  const ScratchFolder scratch;
  const auto digest_of_folder = [&](const char* name) {
    metro::convert_checkpoint(folder.write(), scratch.file(name), false, nullptr);
    return CheckpointReader(scratch.file(name)).digest();
  };

  const auto first = digest_of_folder("first");
  const auto same = digest_of_folder("same");
  metro::write_file_atomically(folder.file("merges.txt"), "#version");
  const auto other_source = digest_of_folder("other_source");
  folder.tensors.at("model.norm.weight").bytes[0] ^= 1;
  const auto other_weight = digest_of_folder("other_weight");

  CHECK(first == same);
  CHECK(first != other_source);
  CHECK(other_source != other_weight);
}

TEST_CASE("a file that is missing, a folder or not HDF5 is refused by name") {
  const ScratchFolder scratch;
  metro::write_file_atomically(scratch.file("text"), "this is not a checkpoint");
  metro::write_file_atomically(scratch.file("empty"), "");

  expect_unreadable(scratch.file("none"), {"/none", "No such file"});
  expect_unreadable(scratch.path().string(), {"not a regular file"});
  expect_unreadable(scratch.file("text"), {"/text: not an HDF5 file"});
  expect_unreadable(scratch.file("empty"), {"/empty: not an HDF5 file"});
}

TEST_CASE("a truncated checkpoint is refused when it is opened") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  const auto full = std::filesystem::file_size(path);

  for (const auto size : {full - 1, full / 2, std::uintmax_t{5000}, std::uintmax_t{100}}) {
    std::filesystem::resize_file(path, size);
    expect_unreadable(path, {path.c_str()});
  }
}

TEST_CASE("a checkpoint cut off after it was opened is refused when it is read") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  CheckpointReader reader(path);
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(reader.info("/norm").file_offset + 10));

  expect_error(ExitCode::checkpoint, {path.c_str(), "truncated"}, [&] { read_bytes(reader, "/norm"); });
}

TEST_CASE("a bit flipped anywhere in the structure is refused or does no harm") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  const std::string good = metro::read_file(path, ExitCode::input);
  const auto expected = CheckpointReader(path).digest();

  for (std::size_t offset = 0; offset < good.size(); offset += 997) {
    CAPTURE(offset);
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << good;
    flip_bit(path, static_cast<std::int64_t>(offset));
    try {
      const CheckpointReader reader(path);
      REQUIRE(reader.digest() == expected);
    } catch (const metro::Error& error) {
      REQUIRE(error.exit_code() == ExitCode::checkpoint);
    }
  }
}

TEST_CASE("another format, version or family is refused with what was found") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  edit(path, [](hid_t file) { set_integer(file, "version", 4); });
  expect_unreadable(path, {path.c_str(), "version 4", "reads versions 1 to 3"});

  edit(path, [](hid_t file) {
    set_integer(file, "version", 1);
    REQUIRE(H5Adelete(file, "family") >= 0);
  });
  expect_unreadable(path, {"attribute family is missing"});

  edit(path, [](hid_t file) { REQUIRE(H5Arename(file, "producer", "family") >= 0); });
  expect_unreadable(path, {"attribute producer is missing"});

  edit(path, [](hid_t file) {
    REQUIRE(H5Adelete(file, "format") >= 0);
    REQUIRE(H5Arename(file, "family", "format") >= 0);
  });
  expect_unreadable(path, {"format is \"metro ", "must be \"metro-checkpoint\""});
}

TEST_CASE("a family that is not that of the config is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  edit(path, [](hid_t file) {
    const hid_t attribute = H5Aopen(file, "family", H5P_DEFAULT);
    const hid_t type = H5Aget_type(attribute);
    REQUIRE(H5Awrite(attribute, type, "qwen4_moe") >= 0);
    REQUIRE(H5Tclose(type) >= 0);
    REQUIRE(H5Aclose(attribute) >= 0);
  });

  expect_unreadable(path, {"family is \"qwen4_moe\"", "model_type \"qwen3_moe\""});
}

TEST_CASE("a version that is not a number is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  edit(path, [](hid_t file) {
    REQUIRE(H5Adelete(file, "version") >= 0);
    REQUIRE(H5Arename(file, "family", "version") >= 0);
  });

  expect_unreadable(path, {"attribute version must hold 1 integer"});
}

TEST_CASE("a missing dataset or group is named") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  edit(path, [](hid_t file) { REQUIRE(H5Ldelete(file, "/layers/001/experts/down", H5P_DEFAULT) >= 0); });
  expect_unreadable(path, {path.c_str(), "/layers/001/experts/down is missing"});

  edit(path, [](hid_t file) { REQUIRE(H5Ldelete(file, "/source/config.json", H5P_DEFAULT) >= 0); });
  expect_unreadable(path, {"/source/config.json is missing"});

  edit(path, [](hid_t file) { REQUIRE(H5Ldelete(file, "/source", H5P_DEFAULT) >= 0); });
  expect_unreadable(path, {"group /source"});
}

TEST_CASE("a dataset of another shape, type or layout is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  const auto replace = [&](hid_t type, std::vector<hsize_t> shape, bool chunked) {
    edit(path, [&](hid_t file) { replace_dataset(file, "/norm", type, std::move(shape), chunked); });
  };

  replace(H5T_IEEE_F32LE, {71}, false);
  expect_unreadable(path, {"dataset /norm has shape [71], the model needs [72]"});
  replace(H5T_IEEE_F32LE, {72, 1}, false);
  expect_unreadable(path, {"dataset /norm has shape [72, 1]"});
  replace(H5T_STD_I16LE, {72}, false);
  expect_unreadable(path, {"dataset /norm is none of bf16, little-endian float32, int8, fp8 and mxfp4"});
  replace(H5T_IEEE_F32BE, {72}, false);
  expect_unreadable(path, {"dataset /norm is none of"});
  replace(H5T_IEEE_F32LE, {72}, true);
  expect_unreadable(path, {"dataset /norm is not stored in one piece"});
}

TEST_CASE("an expert tensor with too few digests is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  edit(path, [&](hid_t file) {
    replace_dataset(file, "/layers/000/experts/down", H5T_IEEE_F32LE, {10, 72, 34}, false);
  });

  expect_unreadable(path, {"attribute digest of /layers/000/experts/down must hold 10 integer"});
}
