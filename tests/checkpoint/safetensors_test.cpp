// The safetensors reader: what it finds in good folders, and that hostile files are refused before memory is taken.
#include "checkpoint/safetensors.hpp"

#include "base/file.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/safetensors_text.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::SafetensorsFolder;
using metro::write_file_atomically;
using metro::test::expect_error;
using metro::test::RawTensors;
using metro::test::safetensors_bytes;
using metro::test::ScratchFolder;

namespace {

constexpr const char* good_header = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";

// Opens a folder whose model.safetensors has these bytes and expects a refusal that names the file.
void expect_refusal(const std::string& content, std::initializer_list<const char*> texts) {
  const ScratchFolder folder;
  write_file_atomically(folder.file("model.safetensors"), content);
  CAPTURE(content.substr(0, 300));
  expect_error(ExitCode::checkpoint, {"/model.safetensors"}, [&] { SafetensorsFolder(folder.path().string()); });
  expect_error(ExitCode::checkpoint, texts, [&] { SafetensorsFolder(folder.path().string()); });
}

void expect_header_refusal(const std::string& header, std::initializer_list<const char*> texts) {
  expect_refusal(safetensors_bytes(header, std::string(16, '\0'), header.size()), texts);
}

void expect_index_refusal(const std::string& index, std::initializer_list<const char*> texts) {
  const ScratchFolder folder;
  write_file_atomically(folder.file("model.safetensors.index.json"), index);
  write_file_atomically(folder.file("s1.safetensors"),
                        safetensors_bytes(good_header, std::string(8, '\0'), std::string(good_header).size()));
  write_file_atomically(folder.file("s2.safetensors"),
                        safetensors_bytes(good_header, std::string(8, '\0'), std::string(good_header).size()));
  expect_error(ExitCode::checkpoint, texts, [&] { SafetensorsFolder(folder.path().string()); });
}

}  // namespace

TEST_CASE("a sharded folder holds the tensors of all its shards with their bytes") {
  const RawTensors expected = metro::test::read_folder(metro::test::sharded);

  const SafetensorsFolder folder(metro::test::sharded);

  REQUIRE(folder.tensors().size() == expected.size());
  for (const auto& [name, raw] : expected) {
    const auto& entry = folder.tensors().at(name);
    std::string bytes(static_cast<std::size_t>(entry.num_bytes), '\0');
    folder.read(entry, 0, std::as_writable_bytes(std::span(bytes)));
    CHECK(entry.dtype == raw.dtype);
    CHECK(entry.shape == raw.shape);
    CHECK(bytes == raw.bytes);
  }
}

TEST_CASE("a tensor can be read in pieces") {
  const SafetensorsFolder folder(metro::test::dense_and_moe);
  const auto& entry = folder.tensors().at("model.norm.weight");
  const auto raw = metro::test::read_folder(metro::test::dense_and_moe).at("model.norm.weight");
  std::string bytes(12, '\0');

  folder.read(entry, 20, std::as_writable_bytes(std::span(bytes)));

  CHECK(bytes == raw.bytes.substr(20, 12));
  CHECK_THROWS_AS(folder.read(entry, entry.num_bytes - 11, std::as_writable_bytes(std::span(bytes))), metro::Bug);
}

TEST_CASE("a header longer than its file, or than the format allows, is refused without reading it") {
  expect_refusal(safetensors_bytes("{}", "", 1ULL << 42), {"claims a header of 4398046511104 bytes"});
  expect_refusal(safetensors_bytes("{}", "", 3), {"claims a header of 3 bytes", "the file has 10"});
  expect_refusal(safetensors_bytes("{}", "", ~0ULL), {"18446744073709551615"});
  expect_refusal("short", {"has 5 bytes", "not a safetensors file"});
}

TEST_CASE("a header of more than 100 MB is refused even if the file is that long") {
  const ScratchFolder folder;
  write_file_atomically(folder.file("model.safetensors"), safetensors_bytes("{}", "", 100'000'001));
  std::filesystem::resize_file(folder.file("model.safetensors"), 200'000'000);

  expect_error(ExitCode::checkpoint, {"claims a header of 100000001 bytes", "100000000 are allowed"},
               [&] { SafetensorsFolder(folder.path().string()); });
}

TEST_CASE("a header that is not the JSON it must be is refused") {
  expect_header_refusal("{\"a\": ", {"header", "line 1"});
  expect_header_refusal("[]", {"not a JSON object"});
  expect_header_refusal(R"({"a": 5})", {"tensor a needs dtype, shape and data_offsets"});
  expect_header_refusal(R"({"a": {"dtype": 1, "shape": [], "data_offsets": [0, 4]}})", {"tensor a needs dtype"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", {"shape of tensor a"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", {"shape of tensor a"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}})",
                        {"data_offsets of tensor a"});
  expect_header_refusal(R"({"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "a": {}})", {"\"a\"", "twice"});
}

TEST_CASE("offsets that are reversed or lie outside the file are refused") {
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}})",
                        {"tensor a has data_offsets [16, 24]", "16 bytes of data"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", {"tensor a", "[8, 0]"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}})", {"tensor a"});
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 18446744073709551615]}})",
                        {"data_offsets of tensor a"});
}

TEST_CASE("a shape that does not give the byte range is refused, also when its product overflows") {
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})",
                        {"tensor a of type F32 and shape [3] cannot have 8 bytes"});
  expect_header_refusal(
      R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4, 4611686018427387904], "data_offsets": [0, 0]}})",
      {"tensor a", "cannot have 0 bytes"});
  expect_header_refusal(R"({"a": {"dtype": "BF16", "shape": [0, 9223372036854775807], "data_offsets": [0, 2]}})",
                        {"cannot have 2 bytes"});
}

TEST_CASE("tensors that overlap are refused") {
  expect_header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                            "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
                        {"tensors a and b overlap"});
}

TEST_CASE("empty tensors and tensors of unknown types do no harm") {
  const ScratchFolder folder;
  const std::string header = R"({"empty": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]},
                                 "odd": {"dtype": "F4", "shape": [3], "data_offsets": [0, 16]}})";
  write_file_atomically(folder.file("model.safetensors"),
                        safetensors_bytes(header, std::string(16, '\0'), header.size()));

  CHECK(SafetensorsFolder(folder.path().string()).tensors().size() == 2);
}

TEST_CASE("shards must be plain file names in the folder") {
  expect_index_refusal(R"({"weight_map": {"a": "../s1.safetensors"}})", {"tensor a", "../s1", "plain file name"});
  expect_index_refusal(R"({"weight_map": {"a": "/etc/passwd"}})", {"plain file name"});
  expect_index_refusal(R"({"weight_map": {"a": ".."}})", {"plain file name"});
  expect_index_refusal(R"({"weight_map": {"a": ""}})", {"plain file name"});
  expect_index_refusal(R"({"weight_map": {"a": 7}})", {"tensor a", "7"});
}

TEST_CASE("an index that does not fit its shards is refused") {
  expect_index_refusal(R"({"weight_map": {"a": "s3.safetensors"}})", {"s3.safetensors", "No such file"});
  expect_index_refusal(R"({"weight_map": {"z": "s1.safetensors"}})", {"tensor z is not in s1.safetensors"});
  expect_index_refusal(R"({"weight_map": {"a": "s1.safetensors", "b": "s2.safetensors"}})",
                       {"s2.safetensors: tensor a is also in", "s1.safetensors"});
  expect_index_refusal(R"({"metadata": {}})", {"index.json", "weight_map"});
  expect_index_refusal("{", {"index.json", "line 1"});
}

TEST_CASE("a folder without weights is refused by name") {
  const ScratchFolder folder;

  expect_error(ExitCode::checkpoint, {"neither model.safetensors nor model.safetensors.index.json"},
               [&] { SafetensorsFolder(folder.path().string()); });
}

TEST_CASE("a weight file that is a folder is refused") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.file("model.safetensors"));

  expect_error(ExitCode::checkpoint, {"model.safetensors", "not a regular file"},
               [&] { SafetensorsFolder(folder.path().string()); });
}
