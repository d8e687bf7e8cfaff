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
      const auto text = pair.at("text").get<std::string>();
      CHECK(tokenizer->encode(text) == ids);
      CHECK(tokenizer->encode_prompt(text) == (pair.contains("prompt_ids") ? pair.at("prompt_ids").get<Ids>() : ids));
    }
    CHECK(tokenizer->decode(ids, false) == decoded);
    if (pair.contains("decoded_without_special")) {
      CHECK(tokenizer->decode(ids, true) == pair.at("decoded_without_special").get<std::string>());
    }
    CHECK(decoded_in_steps(*tokenizer, ids) == decoded);
  }
}

// Checks the text only: of the prompts' beginning and end golden.json does not speak.
void check_golden_of_texts(const Tokenizer& tokenizer, const std::string& golden_file) {
  const auto golden = metro::parse_json(metro::read_file(golden_file, ExitCode::input), golden_file, ExitCode::input);
  REQUIRE(golden.size() >= 50);

  for (const auto& pair : golden) {
    INFO(pair.dump(-1, ' ', true));
    const auto ids = pair.at("ids").get<Ids>();
    CHECK(tokenizer.encode(pair.at("text").get<std::string>()) == ids);
    CHECK(tokenizer.decode(ids, false) == pair.at("decoded").get<std::string>());
    CHECK(decoded_in_steps(tokenizer, ids) == pair.at("decoded").get<std::string>());
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

TEST_CASE("tokenizer.json with byte fallback gives the recorded ids and texts") {
  const std::string name = GENERATE("llama_legacy", "llama_first", "llama_always", "llama_never");
  INFO(name);

  check_golden(tokenizers + name, tokenizers + name + "/golden.json");
}

TEST_CASE("a SentencePiece model gives the ids and texts that the converted model gives") {
  const std::string name = GENERATE("sp_bpe", "sp_bpe_first", "sp_unigram");
  INFO(name);

  check_golden(tokenizers + name, tokenizers + name + "/golden.json");
}

TEST_CASE("Mixtral's SentencePiece model gives the recorded ids and texts") {
  const auto tokenizer = Tokenizer::load(metro::test::files_of_folder(tokenizers + "mistral"));
  REQUIRE(tokenizer != nullptr);

  CHECK(tokenizer->vocab_size() == 32000);
  check_golden_of_texts(*tokenizer, tokenizers + "mistral/golden.json");
}

TEST_CASE("a conversation in Mixtral's form has the published ids") {
  const std::string folder = tokenizers + "mistral";
  const auto tokenizer = Tokenizer::load(metro::test::files_of_folder(folder));
  const auto published = metro::parse_json(metro::read_file(folder + "/chat_v1_ids.json", ExitCode::input),
                                           "chat_v1_ids.json", ExitCode::input);
  // The file spells a space as a mark; those behind <s> and </s> are what SentencePiece puts before a text.
  std::string text = metro::read_file(folder + "/chat_v1.txt", ExitCode::input);
  for (const auto& [spelled, meant] : {std::pair("<s>\u2581", "<s>"), {"</s>\u2581", "</s>"}, {"\u2581", " "}}) {
    for (std::size_t at = text.find(spelled); at != text.npos; at = text.find(spelled)) {
      text.replace(at, std::string(spelled).size(), meant);
    }
  }

  const Ids ids = tokenizer->encode(text);

  CHECK(ids == published.at("tokens").get<Ids>());
}
