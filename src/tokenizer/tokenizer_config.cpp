#include "tokenizer/tokenizer_config.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/json_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace metro::text {

using nlohmann::json;

namespace {

constexpr const char* special_map_file = "special_tokens_map.json";
constexpr const char* added_file = "added_tokens.json";

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

json read_object(const std::string& content, const char* name) {
  json object = parse_json(content, name, ExitCode::checkpoint);
  if (!object.is_object()) {
    fail(name, "an object is needed");
  }
  return object;
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
      AddedToken token = special_token_of(*value, fmt::format("{}: {}", tokenizer_config_file, key));
      tokens.emplace(token.content, token);
    }
  }
  if (find_field(config, "additional_special_tokens") != nullptr) {
    const std::string where = fmt::format("{}: additional_special_tokens", tokenizer_config_file);
    for (const json& value : list_field(config, "additional_special_tokens", tokenizer_config_file)) {
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
  const std::string where = fmt::format("{}: added_tokens_decoder", tokenizer_config_file);
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
      fail(added_file, fmt::format("{:?} has the id {}, but {} has {}", content, id, tokenizer_config_file,
                                   known == tokens.end() ? "no such token" : std::to_string(known->second.id)));
    }
    if (!has_decoder) {
      const bool is_special = named.contains(content);
      tokens.emplace(content,
                     AddedToken{.id = id, .content = content, .special = is_special, .normalized = !is_special});
    }
  }
}

// Classes that add tokens to prompts by add_bos_token and add_eos_token, whatever else the files say.
struct FramingClass {
  std::string_view name;
  bool adds_bos;  // if the configuration does not say
  std::string_view bos;
  std::string_view eos;
};
constexpr auto framing_classes = std::to_array<FramingClass>({
    {"LlamaTokenizer", true, "<s>", "</s>"},
    {"CodeLlamaTokenizer", true, "<s>", "</s>"},
    {"GPTNeoXTokenizer", false, "<|endoftext|>", "<|endoftext|>"},
});

// The id of the token under `key`, or of `otherwise` if the configuration does not speak of it.
std::int32_t id_of_named(const json& config, const char* key, std::string_view otherwise,
                         const TokenizerDefinition& definition) {
  const auto field = config.find(key);
  if (field != config.end() && field->is_null()) {
    fail(tokenizer_config_file, fmt::format("{} is null, but add_{} is true", key, key));
  }
  const std::string content = field == config.end()
                                  ? std::string(otherwise)
                                  : special_token_of(*field, fmt::format("{}: {}", tokenizer_config_file, key)).content;
  const auto added = std::find_if(definition.added_tokens.begin(), definition.added_tokens.end(),
                                  [&](const AddedToken& token) { return token.content == content; });
  if (added != definition.added_tokens.end()) {
    return added->id;
  }
  const auto entry = definition.model.vocab.find(content);
  if (entry == definition.model.vocab.end()) {
    fail(tokenizer_config_file, fmt::format("the special token {:?} ({}) has no id", content, key));
  }
  return entry->second;
}

}  // namespace

json read_tokenizer_config(const TokenizerFiles& files) {
  json config = json::object();
  if (const auto content = files(tokenizer_config_file)) {
    config = read_object(*content, tokenizer_config_file);
  }
  // Older folders name special tokens in a file of their own.
  const auto content = config.contains("added_tokens_decoder") ? std::nullopt : files(special_map_file);
  if (content.has_value()) {
    config.update(read_object(*content, special_map_file));
  }
  return config;
}

std::string tokenizer_class_of(const json& config) {
  std::string name;
  if (find_field(config, "tokenizer_class") != nullptr) {
    name = string_field(config, "tokenizer_class", tokenizer_config_file);
  }
  constexpr std::string_view suffix = "Fast";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

void take_frame_of_class(const json& config, TokenizerDefinition& definition) {
  const std::string name = tokenizer_class_of(config);
  const auto framing = std::find_if(framing_classes.begin(), framing_classes.end(),
                                    [&](const FramingClass& known) { return known.name == name; });
  if (framing == framing_classes.end()) {
    return;
  }
  definition.prompt_frame = {};
  if (bool_field(config, "add_bos_token", tokenizer_config_file, framing->adds_bos)) {
    definition.prompt_frame.before = {id_of_named(config, "bos_token", framing->bos, definition)};
  }
  if (bool_field(config, "add_eos_token", tokenizer_config_file, false)) {
    definition.prompt_frame.after = {id_of_named(config, "eos_token", framing->eos, definition)};
  }
}

std::vector<AddedToken> read_added_tokens(const TokenizerFiles& files, const json& config, const TokenIds& vocab,
                                          std::span<const std::string_view> default_special_tokens) {
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
      fail(tokenizer_config_file, fmt::format("the special token {:?} has no id", content));
    }
    if (!tokens.contains(content)) {
      tokens.emplace(content, token).first->second.id = entry->second;
    }
  }
  for (const std::string_view name : default_special_tokens) {
    const std::string content(name);
    const auto entry = vocab.find(content);
    if (entry != vocab.end() && !tokens.contains(content)) {
      tokens.emplace(content, AddedToken{.id = entry->second, .content = content, .special = true});
    }
  }
  std::vector<AddedToken> list;
  for (const auto& [content, token] : tokens) {
    list.push_back(token);
  }
  return list;
}

}  // namespace metro::text
