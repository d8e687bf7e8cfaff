// What a checkpoint holds after conversion, compared with the source files read by the tests themselves.
#include "checkpoint/convert.hpp"

#include "base/file.hpp"
#include "checkpoint/folders.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

using metro::CheckpointReader;
using metro::convert_checkpoint;
using metro::ConvertedWeights;
using metro::ConvertProgress;
using metro::ConvertSummary;
using metro::ExitCode;
using metro::StoredType;
using metro::test::convert_into;
using metro::test::EditableFolder;
using metro::test::read_bytes;
using metro::test::ScratchFolder;

TEST_CASE("every tensor of a checkpoint has the bytes of its source") {
  const std::string folder = GENERATE(metro::test::families + "qwen3_moe", metro::test::dense_and_moe,
                                      metro::test::sharded, metro::test::tiny);
  CAPTURE(folder);
  const ScratchFolder scratch;

  CheckpointReader reader(convert_into(scratch, folder));

  const auto expected = metro::test::datasets_of(reader.spec(), metro::test::read_folder(folder));
  CHECK(reader.tensors().size() == expected.size());
  for (const auto& [dataset, bytes] : expected) {
    CAPTURE(dataset);
    CHECK(read_bytes(reader, dataset) == bytes);
  }
}

TEST_CASE("copying in small chunks gives the same file as copying in large ones") {
  const ScratchFolder scratch;

  convert_checkpoint(metro::test::dense_and_moe, scratch.file("small"), false, nullptr, ConvertedWeights::stored, 92);
  convert_checkpoint(metro::test::dense_and_moe, scratch.file("large"), false, nullptr);

  CHECK(metro::read_file(scratch.file("small"), ExitCode::input) ==
        metro::read_file(scratch.file("large"), ExitCode::input));
}

TEST_CASE("a sharded folder and the same tensors in one file give the same checkpoint") {
  const ScratchFolder scratch;
  const ScratchFolder joined;
  std::filesystem::copy(metro::test::sharded + "/config.json", joined.path());
  metro::test::write_safetensors(joined.file("model.safetensors"), metro::test::read_folder(metro::test::sharded));

  convert_checkpoint(metro::test::sharded, scratch.file("sharded"), false, nullptr);
  convert_checkpoint(joined.path().string(), scratch.file("joined"), false, nullptr);

  CHECK(metro::read_file(scratch.file("sharded"), ExitCode::input) ==
        metro::read_file(scratch.file("joined"), ExitCode::input));
}

TEST_CASE("the files beside the weights are kept byte for byte") {
  const ScratchFolder scratch;
  const CheckpointReader reader(convert_into(scratch, metro::test::tiny));

  const std::vector<std::string> names = {"chat_template.jinja", "config.json", "generation_config.json",
                                          "tokenizer.json", "tokenizer_config.json"};
  CHECK(reader.source_file_names() == names);
  for (const std::string& name : names) {
    CHECK(reader.source_file(name) == metro::read_file(metro::test::tiny + "/" + name, ExitCode::input));
  }
  CHECK_FALSE(reader.source_file("merges.txt").has_value());
}

TEST_CASE("templates of chat go along, those of the folder for more of them by their last name") {
  const EditableFolder folder;
  const ScratchFolder scratch;
  metro::write_file_atomically(folder.file("chat_template.json"), "{}");
  std::filesystem::create_directory(folder.file("additional_chat_templates"));
  metro::write_file_atomically(folder.file("additional_chat_templates/tool_use.jinja"), "tools");

  const CheckpointReader reader(convert_into(scratch, folder.write()));

  CHECK(reader.source_file("chat_template.json") == "{}");
  CHECK(reader.source_file("tool_use.jinja") == "tools");
}

TEST_CASE("an empty file beside the weights stays an empty file") {
  const EditableFolder folder;
  const ScratchFolder scratch;
  metro::write_file_atomically(folder.file("added_tokens.json"), "");

  const CheckpointReader reader(convert_into(scratch, folder.write()));

  CHECK(reader.source_file("added_tokens.json") == std::string());
}

TEST_CASE("progress counts to the bytes that the summary states") {
  const ScratchFolder scratch;
  std::vector<ConvertProgress> reports;

  const ConvertSummary summary =
      convert_checkpoint(metro::test::sharded, scratch.file("out"), false,
                         [&](const ConvertProgress& progress) { reports.push_back(progress); });

  std::int64_t source_bytes = 0;
  for (const auto& [name, tensor] : metro::test::read_folder(metro::test::sharded)) {
    source_bytes += static_cast<std::int64_t>(tensor.bytes.size());
  }
  CHECK(summary.num_bytes == source_bytes);
  CHECK(summary.num_tensors == 3 + 2 * 11);
  CHECK(summary.notes.empty());
  REQUIRE_FALSE(reports.empty());
  CHECK(reports.back().bytes_done == source_bytes);
  CHECK(reports.back().bytes_total == source_bytes);
  CHECK(reports.front().tensor == "/embed");
  CHECK(std::is_sorted(reports.begin(), reports.end(),
                       [](const auto& a, const auto& b) { return a.bytes_done < b.bytes_done; }));
}

TEST_CASE("fp16 weights become the fp32 numbers they stand for, with a note") {
  EditableFolder folder;
  const ScratchFolder scratch;
  std::vector<std::uint16_t> words(68);
  std::vector<float> numbers(68);
  for (std::size_t idx = 0; idx < words.size(); ++idx) {  // 1 + idx / 1024
    words[idx] = static_cast<std::uint16_t>(0x3c00 + idx);
    numbers[idx] = 1.0F + static_cast<float>(idx) / 1024.0F;
  }
  auto& norm = folder.tensors.at("model.norm.weight");
  norm.dtype = "F16";
  norm.bytes.assign(reinterpret_cast<const char*>(words.data()), 2 * words.size());

  const ConvertSummary summary = convert_checkpoint(folder.write(), scratch.file("out"), false, nullptr);

  CheckpointReader reader(scratch.file("out"));
  std::vector<float> read(68);
  reader.read_tensor("/norm", std::as_writable_bytes(std::span(read)));
  CHECK(read == numbers);
  CHECK(summary.notes == std::vector<std::string>{"f16 widened to f32 (exact): /norm (1)"});
}

TEST_CASE("parts of different types in one dataset are widened, datasets of one type keep it") {
  EditableFolder folder;
  const ScratchFolder scratch;
  auto& up = folder.tensors.at("model.layers.1.mlp.experts.2.up_proj.weight");
  std::string upper_halves;  // a bf16 is the upper half of a float
  for (std::size_t at = 0; at < up.bytes.size(); at += 4) {
    upper_halves += up.bytes.substr(at + 2, 2);
  }
  up.dtype = "BF16";
  up.bytes = upper_halves;
  auto& norm = folder.tensors.at("model.norm.weight");
  norm.dtype = "BF16";
  norm.bytes = std::string(2 * 68, '\1');

  const ConvertSummary summary = convert_checkpoint(folder.write(), scratch.file("out"), false, nullptr);

  CheckpointReader reader(scratch.file("out"));
  CHECK(reader.info("/norm").type == StoredType::bf16);
  CHECK(reader.info("/layers/001/experts/gate_up").type == StoredType::f32);
  std::string expert(2 * 36 * 68 * 4, '\0');
  reader.read_expert("/layers/001/experts/gate_up", 2, std::as_writable_bytes(std::span(expert)));
  const std::string read_up = expert.substr(expert.size() / 2);
  for (std::size_t idx = 0; idx < upper_halves.size() / 2; ++idx) {
    REQUIRE(read_up.substr(4 * idx, 4) == std::string(2, '\0') + upper_halves.substr(2 * idx, 2));
  }
  CHECK(summary.notes ==
        std::vector<std::string>{"parts of different types, widened to f32 (exact): /layers/001/experts/gate_up (1)"});
}

TEST_CASE("tensors that the model does not use are noted in groups") {
  EditableFolder folder;
  const ScratchFolder scratch;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.rotary_emb.inv_freq";
    folder.tensors[name] = {"F64", {1}, std::string(8, '\0')};
  }
  folder.tensors["lm_head.weight"] = {"F32", {1}, std::string(4, '\0')};

  const ConvertSummary summary = convert_checkpoint(folder.write(), scratch.file("out"), false, nullptr);

  CHECK(summary.notes ==
        std::vector<std::string>{"not used: lm_head.weight (1), model.layers.*.self_attn.rotary_emb.inv_freq (4)"});
}

TEST_CASE("after a conversion the folder of the output holds the checkpoint and nothing else") {
  const ScratchFolder scratch;

  convert_into(scratch, metro::test::sharded);

  CHECK(metro::test::files_in(scratch) == std::vector<std::string>{"model.h5"});
}
