// The older form of a tokenizer: vocab.json and merges.txt hold the model, tokenizer_config.json names a class of the
// transformers library, which implies the rest.
#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>

namespace metro::text {

using nlohmann::json;

namespace {

constexpr const char* vocab_file = "vocab.json";
constexpr const char* merges_file = "merges.txt";
constexpr const char* config_file = "tokenizer_config.json";
constexpr const char* added_file = "added_tokens.json";

// The expression that Qwen2Tokenizer implies.
constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What both classes take for the special tokens that the configuration does not name.
constexpr const char* default_special_token = "<|endoftext|>";

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

const std::string& require_file(const std::optional<std::string>& content, const char* name) {
  if (!content.has_value()) {
    fail(name, fmt::format("is missing; a tokenizer is tokenizer.json, or {}, {} and {}", vocab_file, merges_file,
                           config_file));
  }
  return *content;
}

// One merge a line, earliest first; the first line may state a version. Lines may end in CR LF.
std::vector<std::pair<std::string, std::string>> read_merges(std::string_view content) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t line_number = 1; !content.empty(); ++line_number) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    const bool is_version = line_number == 1 && line.starts_with("#version");
    if (!is_version && !line.empty()) {
      merges.push_back(merge_of(line, fmt::format("{}: line {}", merges_file, line_number)));
    }
  }
  if (merges.empty()) {
    fail(merges_file, "it holds no merge");
  }
  return merges;
}

// A special token in the configuration: its text, or an object with its text and flags.
AddedToken special_token_of(const json& value, const std::string& where) {
  AddedToken token{.id = 0, .content = {}, .special = true};
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  object_with(value, {"__type", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
  token.content = string_field(value, "content", where);
  token.normalized = bool_field(value, "normalized", where, false);
  token.lstrip = bool_field(value, "lstrip", where, false);
  token.rstrip = bool_field(value, "rstrip", where, false);
  token.single_word = bool_field(value, "single_word", where, false);
  return token;
}

// The special tokens that the configuration names, by content.
std::map<std::string, AddedToken> named_special_tokens(const json& config) {
  std::map<std::string, AddedToken> tokens;
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (const json* value = find_field(config, key)) {
      AddedToken token = special_token_of(*value, fmt::format("{}: {}", config_file, key));
      tokens.emplace(token.content, token);
    }
  }
  if (const json* list = find_field(config, "additional_special_tokens")) {
    const std::string where = fmt::format("{}: additional_special_tokens", config_file);
    if (!list->is_array()) {
      fail(where, "a list is needed");
    }
    for (const json& value : *list) {
      AddedToken token = special_token_of(value, where);
      tokens.emplace(token.content, token);
    }
  }
  return tokens;
}

std::int32_t id_of_key(const std::string& key, const std::string& where) {
  std::int64_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > max_token_id) {
    fail(where, fmt::format("an id must be an integer from 0 to {}, not {:?}", max_token_id, key));
  }
  return static_cast<std::int32_t>(id);
}

// added_tokens_decoder: {"151643": {"content": "<|endoftext|>", ...}, ...}
std::map<std::string, AddedToken> read_added_tokens_decoder(const json& decoder) {
  const std::string where = fmt::format("{}: added_tokens_decoder", config_file);
  if (!decoder.is_object()) {
    fail(where, "an object is needed");
  }
  std::map<std::string, AddedToken> tokens;
  for (const auto& [key, value] : decoder.items()) {
    const std::string entry_where = fmt::format("{}: {}", where, key);
    object_with(value, {"__type", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, entry_where);
    AddedToken token{.id = id_of_key(key, where), .content = string_field(value, "content", entry_where)};
    token.special = bool_field(value, "special", entry_where, false);
    token.normalized = bool_field(value, "normalized", entry_where, !token.special);
    token.lstrip = bool_field(value, "lstrip", entry_where, false);
    token.rstrip = bool_field(value, "rstrip", entry_where, false);
    token.single_word = bool_field(value, "single_word", entry_where, false);
    if (!tokens.emplace(token.content, token).second) {
      fail(where, fmt::format("{:?} appears twice", token.content));
    }
  }
  return tokens;
}

// added_tokens.json: {"<|endoftext|>": 151643, ...}. It must agree with added_tokens_decoder or stand in for it.
void read_added_tokens_file(const json& file, const std::map<std::string, AddedToken>& named, bool has_decoder,
                            std::map<std::string, AddedToken>& tokens) {
  const TokenIds ids = file.is_object() && file.empty() ? TokenIds{} : vocabulary_of(file, added_file);
  for (const auto& [content, id] : ids) {
    const auto known = tokens.find(content);
    if (has_decoder && (known == tokens.end() || known->second.id != id)) {
      fail(added_file, fmt::format("{:?} has the id {}, but {} has {}", content, id, config_file,
                                   known == tokens.end() ? "no such token" : std::to_string(known->second.id)));
    }
    if (!has_decoder) {
      const bool is_special = named.contains(content);
      tokens.emplace(content,
                     AddedToken{.id = id, .content = content, .special = is_special, .normalized = !is_special});
    }
  }
}

std::vector<AddedToken> read_added_tokens(const TokenizerFiles& files, const json& config, const TokenIds& vocab) {
  const std::map<std::string, AddedToken> named = named_special_tokens(config);
  std::map<std::string, AddedToken> tokens;
  const json* decoder = find_field(config, "added_tokens_decoder");
  if (decoder != nullptr) {
    tokens = read_added_tokens_decoder(*decoder);
  }
  if (const auto content = files(added_file)) {
    read_added_tokens_file(parse_json(*content, added_file, ExitCode::checkpoint), named, decoder != nullptr, tokens);
  }
  // Special tokens may also be plain entries of the vocabulary, as in GPT-2.
  for (const auto& [content, token] : named) {
    const auto entry = vocab.find(content);
    if (!tokens.contains(content) && entry == vocab.end()) {
      fail(config_file, fmt::format("the special token {:?} has no id", content));
    }
    if (!tokens.contains(content)) {
      tokens.emplace(content, token).first->second.id = entry->second;
    }
  }
  const auto entry = vocab.find(default_special_token);
  if (entry != vocab.end() && !tokens.contains(default_special_token)) {
    tokens.emplace(default_special_token,
                   AddedToken{.id = entry->second, .content = default_special_token, .special = true});
  }
  std::vector<AddedToken> list;
  for (const auto& [content, token] : tokens) {
    list.push_back(token);
  }
  return list;
}

}  // namespace

std::optional<TokenizerDefinition> read_vocab_files(const TokenizerFiles& files) {
  const std::optional<std::string> vocab = files(vocab_file);
  const std::optional<std::string> merges = files(merges_file);
  if (!vocab.has_value() && !merges.has_value()) {
    return std::nullopt;
  }
  const std::string& vocab_content = require_file(vocab, vocab_file);
  const std::string& merges_content = require_file(merges, merges_file);
  const json config = parse_json(require_file(files(config_file), config_file), config_file, ExitCode::checkpoint);
  if (!config.is_object()) {
    fail(config_file, "an object is needed");
  }

  TokenizerDefinition definition{
      .origin = vocab_file, .normal_forms = {}, .pre_tokenizer = {}, .model = {}, .added_tokens = {}};
  const std::string class_name = string_field(config, "tokenizer_class", config_file);
  definition.pre_tokenizer.add_prefix_space = bool_field(config, "add_prefix_space", config_file, false);
  if (class_name == "Qwen2Tokenizer" || class_name == "Qwen2TokenizerFast") {
    definition.normal_forms = {NormalForm::nfc};
    definition.pre_tokenizer.splits = {{.pattern = qwen2_pattern}};
  } else if (class_name == "GPT2Tokenizer" || class_name == "GPT2TokenizerFast") {
    definition.pre_tokenizer.split_like_gpt2 = true;
  } else {
    fail(config_file, fmt::format("tokenizer_class {:?} is not supported without tokenizer.json; supported are "
                                  "Qwen2Tokenizer and GPT2Tokenizer",
                                  class_name));
  }
  definition.model.vocab = vocabulary_of(parse_json(vocab_content, vocab_file, ExitCode::checkpoint), vocab_file);
  definition.model.merges = read_merges(merges_content);
  definition.added_tokens = read_added_tokens(files, config, definition.model.vocab);
  return definition;
}

}  // namespace metro::text
