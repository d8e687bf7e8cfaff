// Everything that can be wrong with a folder or an output, and that nothing is left behind.
#include "base/file.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/hdf5_structure.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>

using metro::convert_checkpoint;
using metro::ConvertedWeights;
using metro::ExitCode;
using metro::test::EditableFolder;
using metro::test::expect_error;
using metro::test::files_in;
using metro::test::ScratchFolder;

namespace {

// Converting the folder is refused with these texts and leaves no file.
void expect_refusal(const std::string& folder, std::initializer_list<const char*> texts) {
  const ScratchFolder scratch;
  expect_error(ExitCode::checkpoint, texts,
               [&] { convert_checkpoint(folder, scratch.file("out.h5"), false, nullptr); });
  CHECK(files_in(scratch).empty());
}

void put_float(std::string& bytes, std::size_t element, float value) {
  std::memcpy(bytes.data() + 4 * element, &value, 4);
}

}  // namespace

TEST_CASE("a missing tensor is named with the dataset that needs it") {
  EditableFolder folder;
  folder.tensors.erase("model.layers.3.mlp.experts.7.up_proj.weight");

  expect_refusal(folder.write(),
                 {"tensor model.layers.3.mlp.experts.7.up_proj.weight is missing", "/layers/003/experts/gate_up"});
}

TEST_CASE("a tensor of another shape or type is named with what it has and what it needs") {
  EditableFolder folder;
  auto& norm = folder.tensors.at("model.norm.weight");
  norm.shape = {2, 34};
  expect_refusal(folder.write(), {"/model.safetensors: tensor model.norm.weight has shape [2, 34]", "asks for [68]"});

  norm = {"I32", {68}, std::string(4 * 68, '\0')};
  expect_refusal(folder.write(), {"tensor model.norm.weight has type I32", "BF16, F16, F32"});
}

TEST_CASE("a transposed weight is refused although its size is right") {
  EditableFolder folder;
  folder.tensors.at("model.layers.1.mlp.experts.0.down_proj.weight").shape = {36, 68};

  expect_refusal(folder.write(), {"experts.0.down_proj.weight has shape [36, 68]", "asks for [68, 36]"});
}

TEST_CASE("a weight that is no number is refused with tensor and element") {
  EditableFolder folder;
  const std::string name = "model.layers.2.self_attn.v_proj.weight";
  put_float(folder.tensors.at(name).bytes, 30, std::nanf(""));
  expect_refusal(folder.write(), {"tensor model.layers.2.self_attn.v_proj.weight", "NaN or an infinity at element 30"});

  put_float(folder.tensors.at(name).bytes, 30, -INFINITY);
  expect_refusal(folder.write(), {"tensor model.layers.2.self_attn.v_proj.weight", "element 30"});
}

TEST_CASE("the element that is no number is counted over all chunks") {
  EditableFolder folder;
  const ScratchFolder scratch;
  put_float(folder.tensors.at("model.norm.weight").bytes, 67, INFINITY);

  expect_error(ExitCode::checkpoint, {"model.norm.weight", "element 67"}, [&] {
    convert_checkpoint(folder.write(), scratch.file("out.h5"), false, nullptr, ConvertedWeights::stored, 16);
  });
}

TEST_CASE("a folder without config.json or with one that is refused is named") {
  const ScratchFolder empty;
  expect_refusal(empty.path().string(), {"cannot open", "/config.json", "No such file"});

  const EditableFolder folder;
  metro::write_file_atomically(folder.file("config.json"), R"({"model_type": "gpt2"})");
  expect_refusal(folder.write(), {folder.file("config.json").c_str(), "model_type = \"gpt2\""});
}

TEST_CASE("a truncated weight file is refused") {
  const EditableFolder folder;
  const std::string path = folder.write();
  std::filesystem::resize_file(folder.file("model.safetensors"),
                               std::filesystem::file_size(folder.file("model.safetensors")) - 1);

  expect_refusal(path, {"model.safetensors", "data_offsets"});
}

TEST_CASE("an existing output is kept unless it may be overwritten") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("out.h5");
  metro::write_file_atomically(path, "old");

  expect_error(ExitCode::usage, {"out.h5", "exists"},
               [&] { convert_checkpoint(metro::test::sharded, path, false, nullptr); });
  CHECK(metro::read_file(path, ExitCode::input) == "old");

  convert_checkpoint(metro::test::sharded, path, true, nullptr);
  CHECK(metro::CheckpointReader(path).spec().num_layers == 2);
}

TEST_CASE("a refused conversion leaves the output that it was to overwrite") {
  EditableFolder folder;
  const ScratchFolder scratch;
  const std::string path = scratch.file("out.h5");
  metro::write_file_atomically(path, "old");
  put_float(folder.tensors.at("model.norm.weight").bytes, 0, INFINITY);

  expect_error(ExitCode::checkpoint, {"model.norm.weight"},
               [&] { convert_checkpoint(folder.write(), path, true, nullptr); });

  CHECK(metro::read_file(path, ExitCode::input) == "old");
  CHECK(files_in(scratch) == std::vector<std::string>{"out.h5"});
}

TEST_CASE("an output that cannot be written is refused as a usage error") {
  const ScratchFolder scratch;
  expect_error(ExitCode::usage, {"cannot create", "none/out.h5.partial-", "No such file"},
               [&] { convert_checkpoint(metro::test::sharded, scratch.file("none/out.h5"), false, nullptr); });
  expect_error(ExitCode::usage, {"it is a folder"},
               [&] { convert_checkpoint(metro::test::sharded, scratch.path().string(), true, nullptr); });
}

TEST_CASE("a disk that is full is the fault of the machine and leaves no file") {
  const rlim_t room = GENERATE(1000, 100'000, 474'000, 690'000);  // the tensors have 465,424 bytes, the file 701,424
  CAPTURE(room);
  const ScratchFolder scratch;

  {
    const metro::test::FileSizeLimit limit(room);
    expect_error(ExitCode::machine, {"cannot write", "out.h5.partial-", "File too large"},
                 [&] { convert_checkpoint(metro::test::sharded, scratch.file("out.h5"), false, nullptr); });
  }

  CHECK(files_in(scratch).empty());
}

TEST_CASE("HDF5 survives a disk that fills up while it writes") {
  const rlim_t room = GENERATE(0, 1000, 20'000, 60'000);
  CAPTURE(room);
  const ScratchFolder scratch;
  const std::vector<metro::SourceFile> source_files = {{"config.json", std::string(30'000, 'x')}};
  metro::TensorInfo tensor;
  tensor.dataset = "/group/tensor";
  tensor.shape = {10'000};

  {
    const metro::test::FileSizeLimit limit(room);
    std::vector<metro::TensorInfo> tensors = {tensor};
    expect_error(ExitCode::machine, {"cannot write", "/out.h5"},
                 [&] { metro::create_structure(scratch.file("out.h5"), "family", "producer", source_files, tensors); });
  }

  metro::test::convert_into(scratch, metro::test::sharded);  // it still works, and the program ends without a crash
}

TEST_CASE("a write that does not fit on the disk is the fault of the machine") {
  const ScratchFolder scratch;
  const auto file = metro::FileDescriptor::create(scratch.file("a"));
  const std::vector<std::byte> bytes(1000);
  const metro::test::FileSizeLimit limit(1500);

  file.write_at(500, bytes);

  expect_error(ExitCode::machine, {"cannot write", "/a: File too large"}, [&] { file.write_at(1000, bytes); });
  expect_error(ExitCode::machine, {"/a of 1501 bytes: File too large"}, [&] { file.reserve(1501); });
}

TEST_CASE("a pipe or a link in place of the output is left alone, also with overwriting") {
  const ScratchFolder scratch;
  REQUIRE(::mkfifo(scratch.file("pipe").c_str(), 0600) == 0);
  std::filesystem::create_symlink("elsewhere", scratch.file("link"));

  for (const char* name : {"pipe", "link"}) {
    expect_error(ExitCode::usage, {name, "plain file"},
                 [&] { convert_checkpoint(metro::test::sharded, scratch.file(name), true, nullptr); });
  }

  CHECK(std::filesystem::is_fifo(scratch.file("pipe")));
  CHECK(std::filesystem::is_symlink(scratch.file("link")));
}
