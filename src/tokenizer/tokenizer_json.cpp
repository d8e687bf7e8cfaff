// tokenizer.json of the Hugging Face tokenizers library: every component is read in full or refused by name.
#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace metro::text {

using nlohmann::json;

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

std::string type_of(const json& component, const std::string& where) {
  if (!component.is_object()) {
    fail(where, "an object is needed");
  }
  return string_field(component, "type", where);
}

// The value of a name in a table, or an error that lists the names.
template <class T, std::size_t size>
T named(const std::array<std::pair<std::string_view, T>, size>& table, const std::string& name,
        const std::string& where) {
  std::vector<std::string_view> names;
  for (const auto& [known, value] : table) {
    if (known == name) {
      return value;
    }
    names.push_back(known);
  }
  fail(where, fmt::format("{:?} is not supported; supported are {}", name, fmt::join(names, ", ")));
}

void read_normalizer(const json& component, const std::string& where, std::vector<NormalForm>& forms) {
  constexpr std::array<std::pair<std::string_view, std::optional<NormalForm>>, 5> types = {
      {{"NFC", NormalForm::nfc},
       {"NFD", NormalForm::nfd},
       {"NFKC", NormalForm::nfkc},
       {"NFKD", NormalForm::nfkd},
       {"Sequence", std::nullopt}}};
  const std::optional<NormalForm> form = named(types, type_of(component, where), where);
  if (form.has_value()) {
    object_with(component, {"type"}, where);
    forms.push_back(*form);
    return;
  }
  object_with(component, {"type", "normalizers"}, where);
  const json& parts = require_field(component, "normalizers", where);
  if (!parts.is_array()) {
    fail(where, "normalizers must be a list");
  }
  for (const json& part : parts) {
    read_normalizer(part, where, forms);
  }
}

SplitRule read_split(const json& component, const std::string& where) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> behaviors = {
      {{"Isolated", SplitBehavior::isolated},
       {"Removed", SplitBehavior::removed},
       {"MergedWithPrevious", SplitBehavior::merged_with_previous},
       {"MergedWithNext", SplitBehavior::merged_with_next},
       {"Contiguous", SplitBehavior::contiguous}}};
  object_with(component, {"type", "pattern", "behavior", "invert"}, where);
  const std::string pattern_where = where + ": pattern";
  const json& pattern = object_with(require_field(component, "pattern", where), {"Regex", "String"}, pattern_where);
  if (pattern.size() != 1) {
    fail(pattern_where, "either Regex or String is needed");
  }
  const bool is_regex = pattern.contains("Regex");
  return {.pattern = string_field(pattern, is_regex ? "Regex" : "String", pattern_where),
          .syntax = is_regex ? Regex::Syntax::oniguruma : Regex::Syntax::literal,
          .behavior = named(behaviors, string_field(component, "behavior", where), where + ": behavior"),
          .invert = bool_field(component, "invert", where)};
}

// ByteLevel ends the pre-tokeniser: behind it the text is spelled in another alphabet.
class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(std::string where) : where_(std::move(where)) {}

  PreTokenizerRules read(const json& component) {
    read_component(component);
    if (!has_byte_level_) {
      fail(where_, "there is no ByteLevel; only byte-level tokenizers are supported");
    }
    return rules_;
  }

 private:
  enum class Type { byte_level, split, digits, sequence };

  void read_component(const json& component) {
    constexpr std::array<std::pair<std::string_view, Type>, 4> types = {{{"ByteLevel", Type::byte_level},
                                                                         {"Split", Type::split},
                                                                         {"Digits", Type::digits},
                                                                         {"Sequence", Type::sequence}}};
    const std::string name = type_of(component, where_);
    const Type type = named(types, name, where_);
    const std::string where = where_ + ": " + name;
    if (has_byte_level_) {
      fail(where, "nothing is supported behind ByteLevel");
    }
    switch (type) {
      case Type::byte_level:
        return read_byte_level(component, where);
      case Type::split:
        rules_.splits.push_back(read_split(component, where));
        return;
      case Type::digits:
        return read_digits(component, where);
      case Type::sequence:
        return read_sequence(component, where);
    }
  }

  void read_byte_level(const json& component, const std::string& where) {
    object_with(component, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
    bool_field(component, "trim_offsets", where, true);  // about offsets, which are not given out
    rules_.add_prefix_space = bool_field(component, "add_prefix_space", where);
    rules_.split_like_gpt2 = bool_field(component, "use_regex", where, true);
    has_byte_level_ = true;
  }

  void read_digits(const json& component, const std::string& where) {
    object_with(component, {"type", "individual_digits"}, where);
    const bool is_individual = bool_field(component, "individual_digits", where);
    rules_.splits.push_back({.pattern = is_individual ? R"(\p{N})" : R"(\p{N}+)"});
  }

  void read_sequence(const json& component, const std::string& where) {
    object_with(component, {"type", "pretokenizers"}, where);
    const json& parts = require_field(component, "pretokenizers", where);
    if (!parts.is_array()) {
      fail(where, "pretokenizers must be a list");
    }
    for (const json& part : parts) {
      read_component(part);
    }
  }

  std::string where_;
  PreTokenizerRules rules_;
  bool has_byte_level_ = false;
};

std::vector<std::pair<std::string, std::string>> read_merges(const json& list, const std::string& where) {
  if (!list.is_array()) {
    fail(where, "merges must be a list");
  }
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list.size());
  for (const json& merge : list) {
    const bool is_pair = merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (is_pair) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else if (merge.is_string()) {
      merges.push_back(merge_of(merge.get_ref<const std::string&>(), fmt::format("{} {}", where, merges.size() + 1)));
    } else {
      fail(where, fmt::format("merge {} must be \"a b\" or [\"a\", \"b\"]", merges.size() + 1));
    }
  }
  return merges;
}

BpeRules read_model(const json& model, const std::string& where) {
  // Old files have no type; vocab and merges together make it BPE.
  const std::string type = model.is_object() && !model.contains("type") ? "BPE" : type_of(model, where);
  if (type != "BPE") {
    fail(where, fmt::format("type {:?} is not supported; supported is BPE", type));
  }
  object_with(model,
              {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"},
              where);
  const json* dropout = find_field(model, "dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    fail(where, "dropout is not supported");
  }
  // unk_token and fuse_unk are about text without a token, and every byte has one.
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json* value = find_field(model, affix);
    if (value != nullptr && *value != "") {
      fail(where, fmt::format("{} is not supported", affix));
    }
  }
  if (bool_field(model, "byte_fallback", where, false)) {
    fail(where, "byte_fallback is not supported");
  }
  return {.vocab = vocabulary_of(require_field(model, "vocab", where), where + ": vocab"),
          .merges = read_merges(require_field(model, "merges", where), where + ": merges"),
          .ignore_merges = bool_field(model, "ignore_merges", where, false)};
}

// The library gives the ids of added tokens anew: the id in the vocabulary, else one behind the highest so far. A file
// whose ids differ from that would mean one thing to it and another to its reader.
void check_ids_follow(const std::vector<AddedToken>& tokens, const TokenIds& vocab, const std::string& where) {
  auto next_id = static_cast<std::int64_t>(vocab.size());
  for (const AddedToken& token : tokens) {
    const auto entry = vocab.find(token.content);
    const std::int64_t expected = entry != vocab.end() ? entry->second : next_id++;
    if (token.id != expected) {
      fail(where, fmt::format("{:?} has the id {}, but it must be {} ({})", token.content, token.id, expected,
                              entry != vocab.end() ? "its id in vocab" : "ids follow the vocab without a gap"));
    }
  }
}

std::vector<AddedToken> read_added_tokens(const json& list, const TokenIds& vocab, const std::string& where) {
  if (!list.is_array()) {
    fail(where, "a list is needed");
  }
  std::vector<AddedToken> tokens;
  for (const json& entry : list) {
    const std::string entry_where = fmt::format("{}: entry {}", where, tokens.size() + 1);
    object_with(entry, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, entry_where);
    tokens.push_back({.id = token_id_of(require_field(entry, "id", entry_where), entry_where),
                      .content = string_field(entry, "content", entry_where),
                      .special = bool_field(entry, "special", entry_where),
                      .normalized = bool_field(entry, "normalized", entry_where),
                      .lstrip = bool_field(entry, "lstrip", entry_where),
                      .rstrip = bool_field(entry, "rstrip", entry_where),
                      .single_word = bool_field(entry, "single_word", entry_where)});
  }
  check_ids_follow(tokens, vocab, where);
  return tokens;
}

}  // namespace

TokenizerDefinition read_tokenizer_json(std::string_view content) {
  const std::string origin = "tokenizer.json";
  const json file = parse_json(content, origin, ExitCode::checkpoint);
  // Without effect here: post_processor adds special tokens, truncation and padding are for training batches.
  object_with(file,
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"},
              origin);
  const json* version = find_field(file, "version");
  if (version != nullptr && *version != "1.0") {
    fail(origin, "version must be \"1.0\"");
  }
  TokenizerDefinition definition{
      .origin = origin, .normal_forms = {}, .pre_tokenizer = {}, .model = {}, .added_tokens = {}};
  definition.model = read_model(require_field(file, "model", origin), origin + ": model");
  if (const json* normalizer = find_field(file, "normalizer")) {
    read_normalizer(*normalizer, origin + ": normalizer", definition.normal_forms);
  }
  definition.pre_tokenizer =
      PreTokenizerReader(origin + ": pre_tokenizer").read(require_field(file, "pre_tokenizer", origin));
  const std::string decoder = type_of(require_field(file, "decoder", origin), origin + ": decoder");
  if (decoder != "ByteLevel") {
    fail(origin + ": decoder", fmt::format("{:?} is not supported; supported is ByteLevel", decoder));
  }
  if (const json* added_tokens = find_field(file, "added_tokens")) {
    definition.added_tokens = read_added_tokens(*added_tokens, definition.model.vocab, origin + ": added_tokens");
  }
  return definition;
}

}  // namespace metro::text
