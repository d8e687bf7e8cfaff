// Tokenizer files for tests: a folder of the test data, or a small tokenizer.json made up in memory.
#pragma once

#include "base/file.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace metro::test {

inline TokenizerFiles files_of_folder(const std::string& folder) {
  return [folder](const std::string& name) -> std::optional<std::string> {
    const std::string path = folder + "/" + name;
    return std::filesystem::exists(path) ? std::optional(read_file(path, ExitCode::checkpoint)) : std::nullopt;
  };
}

using FileContents = std::map<std::string, std::string>;

inline TokenizerFiles files_in_memory(const FileContents& contents) {
  return [contents](const std::string& name) -> std::optional<std::string> {
    const auto entry = contents.find(name);
    return entry == contents.end() ? std::nullopt : std::optional(entry->second);
  };
}

// A vocabulary of the 256 bytes: byte b has the id b.
inline nlohmann::json byte_vocabulary() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocab[text::spelling_of_byte(static_cast<std::uint8_t>(byte))] = byte;
  }
  return vocab;
}

// A valid tokenizer.json with the 256 bytes and two merges: "ab" is 256, "abc" is 257, "<end>" (special) is 258.
inline nlohmann::json small_tokenizer() {
  nlohmann::json vocab = byte_vocabulary();
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  nlohmann::json file;
  file["version"] = "1.0";
  file["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}};
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  file["decoder"] = {{"type", "ByteLevel"}};
  file["added_tokens"] = nlohmann::json::array({{{"id", 258},
                                                 {"content", "<end>"},
                                                 {"special", true},
                                                 {"normalized", false},
                                                 {"lstrip", false},
                                                 {"rstrip", false},
                                                 {"single_word", false}}});
  return file;
}

inline std::unique_ptr<Tokenizer> load(const nlohmann::json& tokenizer_json) {
  return Tokenizer::load(files_in_memory({{"tokenizer.json", tokenizer_json.dump()}}));
}

}  // namespace metro::test
