// How a stretch of text between added tokens becomes ids: two ways, one for each kind of tokenizer file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

struct TokenizerDefinition;

class StretchEncoder {
 public:
  virtual ~StretchEncoder() = default;

  // Appends the ids of `utf8`, which is valid UTF-8 and not empty. `begins_text`: nothing comes before it in the text.
  // Time is O(n log n) in the length of the stretch.
  virtual void encode(std::string_view utf8, bool begins_text, std::vector<std::int32_t>& ids) const = 0;
};

// normaliser -> added tokens that are found in normalised text -> pre-tokeniser -> merges.
std::unique_ptr<StretchEncoder> make_merging_encoder(const TokenizerDefinition& definition);

// The SentencePiece library with definition.sentence_piece.
std::unique_ptr<StretchEncoder> make_sentence_piece_encoder(const TokenizerDefinition& definition);

// Both throw Error(checkpoint), message beginning with definition.origin, for what the definition gets wrong.

}  // namespace metro::text
