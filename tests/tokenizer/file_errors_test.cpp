// Files that are damaged or say what is not supported: one clear error each, exit code 4.
#include "support/expect_error.hpp"
#include "tokenizer/tokenizer_files.hpp"

#include <catch2/catch.hpp>

#include <functional>

using metro::ExitCode;
using metro::Tokenizer;
using metro::test::byte_vocabulary;
using metro::test::expect_error;
using metro::test::FileContents;
using metro::test::files_in_memory;
using metro::test::load;
using metro::test::small_tokenizer;
using nlohmann::json;

namespace {

// Loads the small tokenizer.json after a change and expects an error with these texts.
void check_refused(std::initializer_list<const char*> texts, const std::function<void(json&)>& change) {
  json file = small_tokenizer();
  change(file);
  expect_error(ExitCode::checkpoint, texts, [&] { load(file); });
}

void check_content_refused(std::initializer_list<const char*> texts, const std::string& content) {
  expect_error(ExitCode::checkpoint, texts, [&] { Tokenizer::load(files_in_memory({{"tokenizer.json", content}})); });
}

// The small tokenizer as vocab.json, merges.txt and tokenizer_config.json.
FileContents small_vocab_files() {
  json vocab = byte_vocabulary();
  vocab["ab"] = 256;
  const json config = {{"tokenizer_class", "Qwen2Tokenizer"},
                       {"eos_token", "<end>"},
                       {"added_tokens_decoder", {{"257", {{"content", "<end>"}, {"special", true}}}}}};
  return {{"vocab.json", vocab.dump()},
          {"merges.txt", "#version: 0.2\r\na b\r\n"},
          {"tokenizer_config.json", config.dump()}};
}

void check_files_refused(std::initializer_list<const char*> texts, const std::function<void(FileContents&)>& change) {
  FileContents contents = small_vocab_files();
  change(contents);
  expect_error(ExitCode::checkpoint, texts, [&] { Tokenizer::load(files_in_memory(contents)); });
}

json added_token(const json& id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"special", false},    {"normalized", false},
          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
}

json split_of(const json& pattern, const std::string& behavior) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

json sequence_of(const json& parts) {
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};

}  // namespace

TEST_CASE("tokenizer.json that is no JSON object is refused") {
  check_content_refused({"tokenizer.json"}, "");
  check_content_refused({"tokenizer.json"}, std::string("\0\0\0", 3));
  check_content_refused({"tokenizer.json", "object"}, "[]");
  check_content_refused({"tokenizer.json", "deeper"}, std::string(100000, '['));
  check_content_refused({"tokenizer.json", "twice"}, R"({"model": {"vocab": {"a": 1, "a": 2}}})");
  check_content_refused({"tokenizer.json", "model is missing"}, "{}");
}

TEST_CASE("what tokenizer.json says beyond what is known is refused, never ignored") {
  check_refused({"tokenizer.json", "\"extra\"", "not known"}, [](json& f) { f["extra"] = 1; });
  check_refused({"version"}, [](json& f) { f["version"] = "2.0"; });
  check_refused({"model", "\"Unigram\"", "BPE"}, [](json& f) { f["model"]["type"] = "Unigram"; });
  check_refused({"model", "\"novelty\""}, [](json& f) { f["model"]["novelty"] = true; });
  check_refused({"model", "dropout"}, [](json& f) { f["model"]["dropout"] = 0.1; });
  check_refused({"model", "byte_fallback"}, [](json& f) { f["model"]["byte_fallback"] = true; });
  check_refused({"byte_fallback must be true or false", "\"yes\""},
                [](json& f) { f["model"]["byte_fallback"] = "yes"; });
  check_refused({"continuing_subword_prefix"}, [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; });
  check_refused({"end_of_word_suffix"}, [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; });
  check_refused({"normalizer", "\"Lowercase\"", "NFC"}, [](json& f) { f["normalizer"] = {{"type", "Lowercase"}}; });
  check_refused({"normalizer", "\"Strip\""}, [](json& f) {
    f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Strip"}}}}};
  });
  check_refused({"decoder", "\"WordPiece\"", "ByteLevel"}, [](json& f) { f["decoder"]["type"] = "WordPiece"; });
  check_refused({"decoder is missing"}, [](json& f) { f.erase("decoder"); });
}

TEST_CASE("pre-tokenisers that are not supported are refused by name") {
  check_refused({"pre_tokenizer is missing"}, [](json& f) { f["pre_tokenizer"] = nullptr; });
  check_refused({"pre_tokenizer", "\"Punctuation\"", "ByteLevel, Metaspace, Split, Digits, Sequence"}, [](json& f) {
    f["pre_tokenizer"] = {{"type", "Punctuation"}};
  });
  check_refused({"pre_tokenizer: ByteLevel", "\"mode\""}, [](json& f) { f["pre_tokenizer"]["mode"] = 1; });
  check_refused({"add_prefix_space is missing"}, [](json& f) { f["pre_tokenizer"].erase("add_prefix_space"); });
  check_refused({"there is no ByteLevel"}, [](json& f) { f["pre_tokenizer"] = sequence_of(json::array()); });
  check_refused({"pretokenizers must be a list"}, [](json& f) { f["pre_tokenizer"] = sequence_of(1); });
  check_refused({"Digits", "nothing is supported behind ByteLevel"}, [](json& f) {
    f["pre_tokenizer"] = sequence_of({byte_level, {{"type", "Digits"}, {"individual_digits", true}}});
  });
  check_refused({"behavior", "\"Swapped\"", "Isolated"}, [](json& f) {
    f["pre_tokenizer"] = sequence_of({split_of({{"String", "a"}}, "Swapped"), byte_level});
  });
  check_refused({"pattern", "Regex or String"}, [](json& f) {
    f["pre_tokenizer"] = sequence_of({split_of(json::object(), "Isolated"), byte_level});
  });
  check_refused({"regular expression", "\\w"}, [](json& f) {
    f["pre_tokenizer"] = sequence_of({split_of({{"Regex", "\\w"}}, "Isolated"), byte_level});
  });
}

TEST_CASE("ids must be integers from 0, each for one token") {
  check_refused({"vocab", "\"ab\"", "-1"}, [](json& f) { f["model"]["vocab"]["ab"] = -1; });
  check_refused({"vocab", "\"ab\"", "16777215", "4294967296"}, [](json& f) { f["model"]["vocab"]["ab"] = 4294967296; });
  check_refused({"vocab", "\"ab\"", "1.5"}, [](json& f) { f["model"]["vocab"]["ab"] = 1.5; });
  check_refused({"vocab", "\"ab\"", "\"x\""}, [](json& f) { f["model"]["vocab"]["ab"] = "x"; });
  check_refused({"\"ab\"", "\"abc\"", "same id 257"}, [](json& f) { f["model"]["vocab"]["ab"] = 257; });
  check_refused({"vocab", "at least one token"}, [](json& f) { f["model"]["vocab"] = json::object(); });
  check_refused({"vocab has no token", "byte 0x20"}, [](json& f) {
    f["model"]["vocab"].erase("Ġ");
    f["added_tokens"] = nullptr;
  });
}

TEST_CASE("merges must be pairs of tokens of the vocabulary") {
  check_refused({"merges must be a list"}, [](json& f) { f["model"]["merges"] = "a b"; });
  check_refused({"merges 3", "one space", "\"ab\""}, [](json& f) { f["model"]["merges"].push_back("ab"); });
  check_refused({"merges 3", "\"a b c\""}, [](json& f) { f["model"]["merges"].push_back("a b c"); });
  check_refused({"merge 3"}, [](json& f) { f["model"]["merges"].push_back(json::array({"a", "b", "c"})); });
  check_refused({"merge 3", "\"xy\""}, [](json& f) { f["model"]["merges"].push_back(json::array({"x", "y"})); });
  check_refused({"merge 3", "\"none\""}, [](json& f) { f["model"]["merges"].push_back("none y"); });
}

TEST_CASE("added tokens must have a text, all flags and the id that follows") {
  const auto add = [](const json& token) { return [token](json& f) { f["added_tokens"].push_back(token); }; };

  check_refused({"added_tokens", "a list"}, [](json& f) { f["added_tokens"] = 1; });
  check_refused({"added_tokens: entry 2", "-5"}, add(added_token(-5, "x1")));
  check_refused({"\"x1\"", "id 300", "259", "gap"}, add(added_token(300, "x1")));
  check_refused({"\"ab\"", "id 259", "256", "id in vocab"}, add(added_token(259, "ab")));
  check_refused({"259", "no text"}, add(added_token(259, "")));
  check_refused({"<end>", "258", "259"}, add(added_token(259, "<end>")));
  check_refused({"entry 2", "lstrip is missing"}, [](json& f) {
    f["added_tokens"].push_back(added_token(259, "x1"));
    f["added_tokens"][1].erase("lstrip");
  });
  check_refused({"259 and 260 are both", "é"}, [](json& f) {
    f["normalizer"] = {{"type", "NFC"}};
    for (const char* content : {"xé", "xe\xCC\x81"}) {
      f["added_tokens"].push_back(added_token(f["added_tokens"].size() + 258, content));
      f["added_tokens"].back()["normalized"] = true;
    }
  });
}

TEST_CASE("old and lenient forms of tokenizer.json are accepted") {
  json file = small_tokenizer();
  file["model"].erase("type");
  file["model"]["dropout"] = nullptr;
  file["model"]["unk_token"] = "<end>";  // never needed: every byte has a token
  file["model"]["continuing_subword_prefix"] = "";
  file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  file["normalizer"] = nullptr;
  file["pre_tokenizer"].erase("use_regex");
  file["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", true}};
  file["truncation"] = {{"max_length", 1}};

  CHECK(load(file)->encode("abc ab") == std::vector<std::int32_t>{257, ' ', 256});
}

TEST_CASE("vocab.json and merges.txt are read with their configuration") {
  const auto tokenizer = Tokenizer::load(files_in_memory(small_vocab_files()));

  CHECK(tokenizer->encode("ab<end>") == std::vector<std::int32_t>{256, 257});
  CHECK(tokenizer->is_special(257));
}

TEST_CASE("a legacy added_tokens.json gives ids, and the configuration says which are special") {
  FileContents contents = small_vocab_files();
  contents["tokenizer_config.json"] =
      R"({"tokenizer_class": "Qwen2Tokenizer", "eos_token": {"__type": "AddedToken", "content": "<end>"}})";
  contents["added_tokens.json"] = R"({"<end>": 258, "<x>": 257})";

  const auto tokenizer = Tokenizer::load(files_in_memory(contents));

  CHECK(tokenizer->encode("<x><end>") == std::vector<std::int32_t>{257, 258});
  CHECK(tokenizer->is_special(258));
  CHECK_FALSE(tokenizer->is_special(257));
}

TEST_CASE("damaged or missing vocabulary files are named") {
  const auto set = [](const char* name, const std::string& content) {
    return [=](FileContents& contents) { contents[name] = content; };
  };
  const auto remove = [](const char* name) { return [=](FileContents& contents) { contents.erase(name); }; };

  check_files_refused({"vocab.json", "missing"}, remove("vocab.json"));
  check_files_refused({"merges.txt", "missing"}, remove("merges.txt"));
  check_files_refused({"tokenizer_config.json", "missing"}, remove("tokenizer_config.json"));
  check_files_refused({"vocab.json"}, set("vocab.json", ""));
  check_files_refused({"merges.txt", "no merge"}, set("merges.txt", ""));
  check_files_refused({"merges.txt: line 3", "\"a b c\""}, set("merges.txt", "#version: 0.2\na b\na b c\n"));
  check_files_refused({"merge 1", "\"x\\x00\""}, set("merges.txt", std::string("x\0 y\n", 5)));
  check_files_refused({"tokenizer_config.json", "tokenizer_class is missing"}, set("tokenizer_config.json", "{}"));
  check_files_refused({"LlamaTokenizer", "Qwen2Tokenizer and GPT2Tokenizer"},
                      set("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})"));
  check_files_refused({"special token \"<pad>\"", "no id"},
                      set("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>"})"));
  check_files_refused({"added_tokens.json", "\"<end>\"", "id 300", "257"},
                      set("added_tokens.json", R"({"<end>": 300})"));
  check_files_refused({"added_tokens.json", "\"<x>\"", "no such token"}, set("added_tokens.json", R"({"<x>": 300})"));
}

TEST_CASE("added_tokens_decoder must map ids to tokens that do not collide") {
  const auto decoder = [](const std::string& entries) {
    return [=](FileContents& contents) {
      contents["tokenizer_config.json"] =
          R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": )" + entries + "}";
    };
  };

  check_files_refused({"added_tokens_decoder", "\"-1\""}, decoder(R"({"-1": {"content": "<x>"}})"));
  check_files_refused({"added_tokens_decoder", "\"99999999999999999999\""},
                      decoder(R"({"99999999999999999999": {"content": "<x>"}})"));
  check_files_refused({"\"<x>\"", "twice"}, decoder(R"({"257": {"content": "<x>"}, "258": {"content": "<x>"}})"));
  check_files_refused({"\"<x>\"", "id 256", "another token"}, decoder(R"({"256": {"content": "<x>"}})"));
  check_files_refused({"\"ab\"", "id 257", "256"}, decoder(R"({"257": {"content": "ab"}})"));
  check_files_refused({"257", "content is missing"}, decoder(R"({"257": {}})"));
  check_files_refused({"257", "no text"}, decoder(R"({"257": {"content": ""}})"));
  check_files_refused({"\"weight\""}, decoder(R"({"257": {"content": "<x>", "weight": 1}})"));
}
