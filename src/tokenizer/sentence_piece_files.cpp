// The oldest form of a tokenizer: a SentencePiece model, and files of the transformers library that name special
// tokens. What is implied is what its class LlamaTokenizer does with such a model (in the form for the tokenizers
// library).
#include "base/error.hpp"
#include "tokenizer/json_fields.hpp"
#include "tokenizer/sentence_piece_model.hpp"
#include "tokenizer/tokenizer_config.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace metro::text {

using nlohmann::json;

namespace {

// The first name that is there. The numbered ones are Mistral's.
constexpr std::array model_files = {"tokenizer.model", "tokenizer.model.v3", "tokenizer.model.v2",
                                    "tokenizer.model.v1"};
constexpr const char* class_name = "LlamaTokenizer";
constexpr std::array<std::string_view, 3> default_special_tokens = {"<unk>", "<s>", "</s>"};

SpacePrefix prefix_of(const json& config) {
  if (!bool_field(config, "add_prefix_space", tokenizer_config_file, true)) {
    return SpacePrefix::none;
  }
  const bool is_legacy = bool_field(config, "legacy", tokenizer_config_file, true);
  return is_legacy ? SpacePrefix::every_stretch : SpacePrefix::text;
}

// Pieces that stand for themselves only are found in raw text, like added tokens.
void add_pieces(const SentencePieceModel& model, std::vector<AddedToken>& tokens) {
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [content, type] = model.pieces[id];
    const bool is_alone = type == PieceType::control || type == PieceType::user_defined;
    const bool is_there = std::any_of(tokens.begin(), tokens.end(),
                                      [&piece = content](const AddedToken& token) { return token.content == piece; });
    if (is_alone && !is_there) {
      tokens.push_back(
          {.id = static_cast<std::int32_t>(id), .content = content, .special = type == PieceType::control});
    }
  }
}

void check_added_tokens(const std::vector<AddedToken>& tokens, const std::string& origin) {
  for (const AddedToken& token : tokens) {
    if (token.normalized) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: the added token {:?} has normalized true, which is not supported beside {}",
                              tokenizer_config_file, token.content, origin));
    }
  }
}

}  // namespace

std::optional<TokenizerDefinition> read_sentence_piece_files(const TokenizerFiles& files) {
  std::optional<std::string> content;
  TokenizerDefinition definition;
  for (std::size_t i = 0; i < model_files.size() && !content.has_value(); ++i) {
    definition.origin = model_files[i];
    content = files(definition.origin);
  }
  if (!content.has_value()) {
    return std::nullopt;
  }
  json config = read_tokenizer_config(files);
  const std::string named_class = tokenizer_class_of(config);
  if (!named_class.empty() && named_class != class_name) {
    throw Error(
        ExitCode::checkpoint,
        fmt::format("{}: tokenizer_class {:?} is not supported with {} and without tokenizer.json; supported is {}",
                    tokenizer_config_file, named_class, definition.origin, class_name));
  }
  config["tokenizer_class"] = class_name;

  SentencePieceModel model = parse_sentence_piece_model(*content, definition.origin);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    definition.model.vocab.emplace(model.pieces[id].text, static_cast<std::int32_t>(id));
  }
  const SpacePrefix prefix = prefix_of(config);
  definition.decoder = {.byte_level = false,
                        .replacements = {{std::string(space_mark), " "}},
                        .byte_fallback = true,
                        .num_leading_spaces = prefix == SpacePrefix::none ? std::size_t{0} : std::size_t{1}};
  definition.added_tokens = read_added_tokens(files, config, definition.model.vocab, default_special_tokens);
  add_pieces(model, definition.added_tokens);
  check_added_tokens(definition.added_tokens, definition.origin);
  definition.sentence_piece = SentencePieceRules{std::move(model.content), prefix};
  take_frame_of_class(config, definition);
  return definition;
}

}  // namespace metro::text
