#include "tokenizer/tokenizer.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/stretch_encoder.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

using text::AddedToken;
using text::AddedTokenMatcher;

namespace {

// Added tokens that are found in the raw text.
std::vector<AddedToken> tokens_in_raw_text(const text::TokenizerDefinition& definition) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : definition.added_tokens) {
    if (token.content.empty()) {
      throw Error(ExitCode::checkpoint, fmt::format("{}: the added token {} has no text", definition.origin, token.id));
    }
    if (!token.normalized) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

const char* kind_of(const text::TokenizerDefinition& definition) {
  if (definition.sentence_piece.has_value()) {
    return "SentencePiece";
  }
  return definition.model.byte_fallback ? "BPE with byte fallback" : "byte-level BPE";
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(text::TokenizerDefinition definition);

  struct Token {
    std::string bytes;
    bool is_special = false;
    bool exists = false;
  };

  void take_added_token(const AddedToken& added, const text::Normalizer& normalizer);
  void check_prompt_frame() const;
  const Token* find(std::int32_t id) const;
  std::string spellings(const std::vector<std::int32_t>& ids) const;

  std::string origin;
  std::string kind;
  AddedTokenMatcher matcher;
  std::unique_ptr<text::StretchEncoder> encoder;
  text::DecoderRules decoder;
  text::PromptFrame prompt_frame;
  text::TokenIds token_ids;
  std::vector<Token> tokens;  // by id
};

Tokenizer::Impl::Impl(text::TokenizerDefinition definition)
    : origin(definition.origin),
      kind(kind_of(definition)),
      matcher(tokens_in_raw_text(definition), definition.origin),
      encoder(definition.sentence_piece.has_value() ? text::make_sentence_piece_encoder(definition)
                                                    : text::make_merging_encoder(definition)),
      decoder(std::move(definition.decoder)),
      prompt_frame(std::move(definition.prompt_frame)),
      token_ids(std::move(definition.model.vocab)) {
  std::int32_t highest_id = -1;
  for (const auto& [spelling, id] : token_ids) {
    highest_id = std::max(highest_id, id);
  }
  for (const AddedToken& token : definition.added_tokens) {
    highest_id = std::max(highest_id, token.id);
  }
  tokens.resize(static_cast<std::size_t>(highest_id) + 1);
  for (const auto& [spelling, id] : token_ids) {
    Token& token = tokens[static_cast<std::size_t>(id)];
    token.bytes = text::decoded_bytes(spelling, decoder);
    token.exists = true;
  }
  const text::Normalizer normalizer(definition.normalizer, origin);
  for (const AddedToken& token : definition.added_tokens) {
    take_added_token(token, normalizer);
  }
  check_prompt_frame();
}

void Tokenizer::Impl::take_added_token(const AddedToken& added, const text::Normalizer& normalizer) {
  Token& token = tokens[static_cast<std::size_t>(added.id)];
  const auto [entry, is_new] = token_ids.emplace(added.content, added.id);
  const bool is_taken = is_new && token.exists;
  if (entry->second != added.id || is_taken) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{}: the added token {:?} has the id {}, {}", origin, added.content, added.id,
                            is_taken ? "which another token has" : fmt::format("but also the id {}", entry->second)));
  }
  token.exists = true;
  token.is_special = added.special;
  // The reference library decodes the normalised form of a token that it looks for in normalised text.
  token.bytes = text::decoded_bytes(added.normalized ? normalizer.normalize(added.content) : added.content, decoder);
}

void Tokenizer::Impl::check_prompt_frame() const {
  for (const auto* ids : {&prompt_frame.before, &prompt_frame.after}) {
    for (const std::int32_t id : *ids) {
      if (find(id) == nullptr || !find(id)->exists) {
        throw Error(ExitCode::checkpoint,
                    fmt::format("{}: prompts get the token {} added, which does not exist", origin, id));
      }
    }
  }
}

const Tokenizer::Impl::Token* Tokenizer::Impl::find(std::int32_t id) const {
  const bool is_inside = id >= 0 && static_cast<std::size_t>(id) < tokens.size();
  return is_inside ? &tokens[static_cast<std::size_t>(id)] : nullptr;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::load(const TokenizerFiles& files) {
  // Hugging Face prefers the first, too, and converts what it must.
  for (const auto read : {text::read_tokenizer_json, text::read_sentence_piece_files, text::read_vocab_files}) {
    if (auto definition = read(files)) {
      return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(*std::move(definition))));
    }
  }
  return nullptr;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8) const {
  if (const auto at = text::first_invalid_byte(utf8)) {
    throw Error(ExitCode::input, fmt::format("the text is not valid UTF-8 at byte {}", *at));
  }
  std::vector<std::int32_t> ids;
  impl_->matcher.cut(utf8, [&](std::string_view stretch, std::optional<std::int32_t> id) {
    if (id.has_value()) {
      ids.push_back(*id);
    } else {
      impl_->encoder->encode(stretch, stretch.data() == utf8.data(), ids);
    }
  });
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view utf8) const {
  std::vector<std::int32_t> ids = impl_->prompt_frame.before;
  const std::vector<std::int32_t> inner = encode(utf8);
  ids.insert(ids.end(), inner.begin(), inner.end());
  ids.insert(ids.end(), impl_->prompt_frame.after.begin(), impl_->prompt_frame.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens, TextPart part) const {
  StreamingDecoder streaming(*this, skip_special_tokens, part);
  std::string decoded;
  for (const std::int32_t id : ids) {
    decoded += streaming.push(id);
  }
  return decoded + streaming.finish();
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  const Impl::Token* token = impl_->find(id);
  return token == nullptr ? std::string_view() : token->bytes;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const Impl::Token* token = impl_->find(id);
  return token != nullptr && token->is_special;
}

std::int64_t Tokenizer::vocab_size() const {
  return static_cast<std::int64_t>(impl_->tokens.size());
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  const auto entry = impl_->token_ids.find(std::string(token));
  return entry == impl_->token_ids.end() ? std::nullopt : std::optional(entry->second);
}

// The tokens as text, in quotes.
std::string Tokenizer::Impl::spellings(const std::vector<std::int32_t>& ids) const {
  std::vector<std::string_view> texts;
  for (const std::int32_t id : ids) {
    texts.push_back(find(id)->bytes);
  }
  return fmt::format("\"{}\"", fmt::join(texts, ""));
}

std::string Tokenizer::description() const {
  std::string text = fmt::format("{}, {}, {} ids", impl_->origin, impl_->kind, vocab_size());
  if (!impl_->prompt_frame.before.empty()) {
    text += fmt::format(", {} before a prompt", impl_->spellings(impl_->prompt_frame.before));
  }
  if (!impl_->prompt_frame.after.empty()) {
    text += fmt::format(", {} behind a prompt", impl_->spellings(impl_->prompt_frame.after));
  }
  return text;
}

const text::DecoderRules& Tokenizer::decoder_rules() const {
  return impl_->decoder;
}

}  // namespace metro
