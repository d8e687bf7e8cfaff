#include "tokenizer/tokenizer.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

using text::AddedToken;
using text::AddedTokenMatcher;

namespace {

// What a token adds to decoded bytes: the bytes it spells, or itself if it is not spelled in the byte alphabet.
std::string decoded_bytes(const std::string& token) {
  return text::bytes_of_spelling(token).value_or(token);
}

void check_added_token(const AddedToken& token, const std::string& origin) {
  if (token.content.empty()) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: the added token {} has no text", origin, token.id));
  }
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(text::TokenizerDefinition definition);

  struct Token {
    std::string bytes;
    bool is_special = false;
    bool exists = false;
  };

  void take_token(const std::string& spelling, std::int32_t id);
  void take_added_token(const AddedToken& token);
  void encode_plain(std::string_view plain, std::vector<std::int32_t>& ids) const;
  const Token* find(std::int32_t id) const;

  std::string origin;
  text::TokenIds token_ids;
  std::vector<Token> tokens;  // by id
  std::vector<text::NormalForm> normal_forms;
  text::PreTokenizer pre_tokenizer;
  text::BytePairEncoder encoder;
  // Added tokens that are found in the raw text, and those found in what is left of it after normalising.
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
};

namespace {

std::vector<AddedToken> tokens_to_match(const text::TokenizerDefinition& definition, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : definition.added_tokens) {
    check_added_token(token, definition.origin);
    if (token.normalized == normalized) {
      tokens.push_back(token);
    }
    if (token.normalized && normalized) {
      tokens.back().content = text::normalized(token.content, definition.normal_forms);
    }
  }
  return tokens;
}

}  // namespace

Tokenizer::Impl::Impl(text::TokenizerDefinition definition)
    : origin(definition.origin),
      normal_forms(definition.normal_forms),
      pre_tokenizer(definition.pre_tokenizer, definition.origin),
      encoder(definition.model, definition.origin),
      raw_matcher(tokens_to_match(definition, false), definition.origin),
      normalized_matcher(tokens_to_match(definition, true), definition.origin) {
  token_ids = std::move(definition.model.vocab);
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
    token.bytes = decoded_bytes(spelling);
    token.exists = true;
  }
  for (const AddedToken& token : definition.added_tokens) {
    take_added_token(token);
  }
}

void Tokenizer::Impl::take_added_token(const AddedToken& added) {
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
  token.bytes = decoded_bytes(added.normalized ? text::normalized(added.content, normal_forms) : added.content);
}

void Tokenizer::Impl::encode_plain(std::string_view plain, std::vector<std::int32_t>& ids) const {
  const std::string normal = text::normalized(plain, normal_forms);
  normalized_matcher.cut(normal, [&](std::string_view stretch, std::optional<std::int32_t> id) {
    if (id.has_value()) {
      ids.push_back(*id);
    } else {
      pre_tokenizer.split(stretch, [&](std::string_view word) { encoder.encode(word, ids); });
    }
  });
}

const Tokenizer::Impl::Token* Tokenizer::Impl::find(std::int32_t id) const {
  const bool is_inside = id >= 0 && static_cast<std::size_t>(id) < tokens.size();
  return is_inside ? &tokens[static_cast<std::size_t>(id)] : nullptr;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::load(const TokenizerFiles& files) {
  std::optional<text::TokenizerDefinition> definition;
  if (const auto content = files("tokenizer.json")) {
    definition = text::read_tokenizer_json(*content);
  } else {
    definition = text::read_vocab_files(files);
  }
  if (!definition.has_value()) {
    return nullptr;
  }
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(*std::move(definition))));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8) const {
  if (const auto at = text::first_invalid_byte(utf8)) {
    throw Error(ExitCode::input, fmt::format("the text is not valid UTF-8 at byte {}", *at));
  }
  std::vector<std::int32_t> ids;
  impl_->raw_matcher.cut(utf8, [&](std::string_view stretch, std::optional<std::int32_t> id) {
    if (id.has_value()) {
      ids.push_back(*id);
    } else {
      impl_->encode_plain(stretch, ids);
    }
  });
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!skip_special_tokens || !is_special(id)) {
      bytes += token_bytes(id);
    }
  }
  std::string decoded;
  text::append_with_replacement(bytes, decoded);
  return decoded;
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

}  // namespace metro
