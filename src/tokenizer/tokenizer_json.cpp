// tokenizer.json of the Hugging Face tokenizers library: every component is read in full or refused by name.
#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/json_components.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/tokenizer_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace metro::text {

using nlohmann::json;

namespace {

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

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
  return {.vocab = vocabulary_of(require_field(model, "vocab", where), where + ": vocab"),
          .merges = read_merges(require_field(model, "merges", where), where + ": merges"),
          .ignore_merges = bool_field(model, "ignore_merges", where, false),
          .byte_fallback = bool_field(model, "byte_fallback", where, false)};
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

// The pre-tokeniser and the decoder must speak of what the model is made of: bytes or characters.
void read_spelling(const json& file, const std::string& origin, TokenizerDefinition& definition) {
  const bool byte_fallback = definition.model.byte_fallback;
  const std::string where = origin + ": pre_tokenizer";
  PreTokenizerComponent pre_tokenizer;
  if (!byte_fallback || find_field(file, "pre_tokenizer") != nullptr) {
    pre_tokenizer = read_pre_tokenizer(require_field(file, "pre_tokenizer", origin), where);
  }
  if (pre_tokenizer.is_byte_level == byte_fallback) {
    fail(byte_fallback ? origin + ": model" : where,
         byte_fallback ? "byte_fallback is not supported where the pre_tokenizer is ByteLevel"
                       : "there is no ByteLevel; only tokenizers with it or with byte_fallback are supported");
  }
  definition.pre_tokenizer = std::move(pre_tokenizer.rules);
  const std::string decoder_where = origin + ": decoder";
  definition.decoder = read_decoder(require_field(file, "decoder", origin), decoder_where);
  if (definition.decoder.byte_level == byte_fallback) {
    fail(decoder_where, byte_fallback ? "ByteLevel is not supported with byte_fallback" : "ByteLevel is needed");
  }
}

}  // namespace

std::optional<TokenizerDefinition> read_tokenizer_json(const TokenizerFiles& files) {
  const std::string origin = "tokenizer.json";
  const std::optional<std::string> content = files(origin);
  if (!content.has_value()) {
    return std::nullopt;
  }
  const json file = parse_json(*content, origin, ExitCode::checkpoint);
  // Without effect here: truncation and padding are for training batches.
  object_with(file,
              {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"},
              origin);
  const json* version = find_field(file, "version");
  if (version != nullptr && *version != "1.0") {
    fail(origin, "version must be \"1.0\"");
  }
  TokenizerDefinition definition;
  definition.origin = origin;
  definition.model = read_model(require_field(file, "model", origin), origin + ": model");
  if (const json* normalizer = find_field(file, "normalizer")) {
    definition.normalizer = read_normalizer(*normalizer, origin + ": normalizer");
  }
  read_spelling(file, origin, definition);
  if (const json* added_tokens = find_field(file, "added_tokens")) {
    definition.added_tokens = read_added_tokens(*added_tokens, definition.model.vocab, origin + ": added_tokens");
  }
  if (const json* post_processor = find_field(file, "post_processor")) {
    definition.prompt_frame = read_post_processor(*post_processor, origin + ": post_processor");
  }
  take_frame_of_class(read_tokenizer_config(files), definition);
  return definition;
}

}  // namespace metro::text
