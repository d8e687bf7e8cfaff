// The older form of a tokenizer: vocab.json and merges.txt hold the model, tokenizer_config.json names a class of the
// transformers library, which implies the rest.
#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/tokenizer_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace metro::text {

using nlohmann::json;

namespace {

constexpr const char* vocab_file = "vocab.json";
constexpr const char* merges_file = "merges.txt";

// The expression that Qwen2Tokenizer implies.
constexpr const char* qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What both classes take for the special tokens that the configuration does not name.
constexpr std::array<std::string_view, 1> default_special_tokens = {"<|endoftext|>"};

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

const std::string& require_file(const std::optional<std::string>& content, const char* name) {
  if (!content.has_value()) {
    fail(name, fmt::format("is missing; a tokenizer is tokenizer.json, or {}, {} and {}", vocab_file, merges_file,
                           tokenizer_config_file));
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

}  // namespace

std::optional<TokenizerDefinition> read_vocab_files(const TokenizerFiles& files) {
  const std::optional<std::string> vocab = files(vocab_file);
  const std::optional<std::string> merges = files(merges_file);
  if (!vocab.has_value() && !merges.has_value()) {
    return std::nullopt;
  }
  const std::string& vocab_content = require_file(vocab, vocab_file);
  const std::string& merges_content = require_file(merges, merges_file);
  require_file(files(tokenizer_config_file), tokenizer_config_file);
  const json config = read_tokenizer_config(files);

  TokenizerDefinition definition;
  definition.origin = vocab_file;
  definition.decoder.byte_level = true;
  string_field(config, "tokenizer_class", tokenizer_config_file);
  const std::string class_name = tokenizer_class_of(config);
  definition.pre_tokenizer.add_prefix_space = bool_field(config, "add_prefix_space", tokenizer_config_file, false);
  if (class_name == "Qwen2Tokenizer") {
    definition.normalizer = {NormalForm::nfc};
    definition.pre_tokenizer.splits = {{.pattern = qwen2_pattern}};
  } else if (class_name == "GPT2Tokenizer") {
    definition.pre_tokenizer.split_like_gpt2 = true;
  } else {
    fail(tokenizer_config_file,
         fmt::format("tokenizer_class {:?} is not supported without tokenizer.json; supported are "
                     "Qwen2Tokenizer and GPT2Tokenizer",
                     class_name));
  }
  definition.model.vocab = vocabulary_of(parse_json(vocab_content, vocab_file, ExitCode::checkpoint), vocab_file);
  definition.model.merges = read_merges(merges_content);
  definition.added_tokens = read_added_tokens(files, config, definition.model.vocab, default_special_tokens);
  return definition;
}

}  // namespace metro::text
