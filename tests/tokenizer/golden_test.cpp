// Every recorded text and id list of the reference library, both ways.
#include "base/json.hpp"
#include "tokenizer/tokenizer_files.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::StreamingDecoder;
using metro::Tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

std::string decoded_in_steps(const Tokenizer& tokenizer, const Ids& ids) {
  StreamingDecoder decoder(tokenizer, false);
  std::string text;
  for (const std::int32_t id : ids) {
    text += decoder.push(id);
  }
  return text + decoder.finish();
}

void check_golden(const std::string& folder, const std::string& golden_file) {
  const auto tokenizer = Tokenizer::load(metro::test::files_of_folder(folder));
  REQUIRE(tokenizer != nullptr);
  const auto golden = metro::parse_json(metro::read_file(golden_file, ExitCode::input), golden_file, ExitCode::input);
  REQUIRE(golden.size() >= 50);

  for (const auto& pair : golden) {
    INFO(pair.dump(-1, ' ', true));
    const auto ids = pair.at("ids").get<Ids>();
    const auto decoded = pair.at("decoded").get<std::string>();
    if (pair.contains("text")) {
      CHECK(tokenizer->encode(pair.at("text").get<std::string>()) == ids);
    }
    CHECK(tokenizer->decode(ids, false) == decoded);
    if (pair.contains("decoded_without_special")) {
      CHECK(tokenizer->decode(ids, true) == pair.at("decoded_without_special").get<std::string>());
    }
    CHECK(decoded_in_steps(*tokenizer, ids) == decoded);
  }
}

const std::string tokenizers = std::string(METRO_TEST_DATA) + "/tokenizers/";

}  // namespace

TEST_CASE("the tokenizer of the tiny model gives the recorded ids and texts") {
  check_golden(std::string(METRO_SOURCE_DIR) + "/inputs/models/tiny",
               std::string(METRO_TEST_DATA) + "/tiny/tokenizer_golden.json");
}

TEST_CASE("Qwen2's vocab.json and merges.txt give the recorded ids and texts") {
  check_golden(tokenizers + "qwen2", tokenizers + "qwen2/golden.json");
}

TEST_CASE("vocab.json and merges.txt of class GPT2Tokenizer give the recorded ids and texts") {
  check_golden(tokenizers + "gpt2", tokenizers + "gpt2/golden.json");
}

TEST_CASE("tokenizer.json of every family gives the recorded ids and texts") {
  const std::string name =
      GENERATE("neox", "llama3", "deepseek_v2", "deepseek_v3", "o200k", "flags_nfc", "flags_nfkd", "prefix_nfkc");
  INFO(name);

  check_golden(tokenizers + name, tokenizers + name + "/golden.json");
}
