#include "base/error.hpp"
#include "tokenizer/stretch_encoder.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>

namespace metro::text {

namespace {

std::vector<AddedToken> tokens_in_normalized_text(const TokenizerDefinition& definition, const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : definition.added_tokens) {
    if (token.normalized) {
      tokens.push_back(token);
      tokens.back().content = normalizer.normalize(token.content);
      if (tokens.back().content.empty()) {
        throw Error(ExitCode::checkpoint, fmt::format("{}: the normalizer leaves nothing of the added token {:?}",
                                                      definition.origin, token.content));
      }
    }
  }
  return tokens;
}

class MergingEncoder : public StretchEncoder {
 public:
  explicit MergingEncoder(const TokenizerDefinition& definition)
      : normalizer_(definition.normalizer, definition.origin),
        matcher_(tokens_in_normalized_text(definition, normalizer_), definition.origin),
        pre_tokenizer_(definition.pre_tokenizer, definition.origin),
        encoder_(definition.model, definition.origin) {}

  void encode(std::string_view utf8, bool begins_text, std::vector<std::int32_t>& ids) const override {
    const std::string normal = normalizer_.normalize(utf8);
    matcher_.cut(normal, [&](std::string_view stretch, std::optional<std::int32_t> id) {
      if (id.has_value()) {
        ids.push_back(*id);
        return;
      }
      const bool begins = begins_text && stretch.data() == normal.data();
      pre_tokenizer_.split(stretch, begins, [&](std::string_view word) { encoder_.encode(word, ids); });
    });
  }

 private:
  Normalizer normalizer_;
  AddedTokenMatcher matcher_;
  PreTokenizer pre_tokenizer_;
  BytePairEncoder encoder_;
};

}  // namespace

std::unique_ptr<StretchEncoder> make_merging_encoder(const TokenizerDefinition& definition) {
  return std::make_unique<MergingEncoder>(definition);
}

}  // namespace metro::text
