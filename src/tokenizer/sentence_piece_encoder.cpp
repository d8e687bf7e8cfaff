// The one file that uses the SentencePiece library.
#include "base/error.hpp"
#include "tokenizer/stretch_encoder.hpp"
#include "tokenizer/tokenizer_definition.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <limits>
#include <utility>

namespace metro::text {

namespace {

class SentencePieceEncoder : public StretchEncoder {
 public:
  explicit SentencePieceEncoder(const TokenizerDefinition& definition)
      : origin_(definition.origin), prefix_(definition.sentence_piece.value().prefix) {
    const auto status = processor_.LoadFromSerializedProto(definition.sentence_piece->content);
    if (!status.ok()) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: the SentencePiece library refuses it: {}", origin_, one_line(status.message())));
    }
  }

  void encode(std::string_view utf8, bool begins_text, std::vector<std::int32_t>& ids) const override {
    // The library counts in int, and a byte can become three.
    constexpr std::size_t max_bytes = std::numeric_limits<int>::max() / 4;
    if (utf8.size() > max_bytes) {
      throw Error(ExitCode::input, fmt::format("a text of {} bytes is too long; the SentencePiece library takes {}",
                                               utf8.size(), max_bytes));
    }
    std::vector<int> pieces;
    const auto status = wants_space(utf8, begins_text) ? processor_.Encode(fmt::format(" {}", utf8), &pieces)
                                                       : processor_.Encode({utf8.data(), utf8.size()}, &pieces);
    if (!status.ok()) {
      throw Error(ExitCode::input, fmt::format("the SentencePiece library cannot encode a text of {} bytes: {}",
                                               utf8.size(), one_line(status.message())));
    }
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

 private:
  bool wants_space(std::string_view utf8, bool begins_text) const {
    switch (prefix_) {
      case SpacePrefix::every_stretch:
        return true;
      case SpacePrefix::text:
        return begins_text && !utf8.starts_with(' ') && !utf8.starts_with(space_mark);
      case SpacePrefix::none:
        return false;
    }
    return false;
  }

  std::string origin_;
  SpacePrefix prefix_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<StretchEncoder> make_sentence_piece_encoder(const TokenizerDefinition& definition) {
  return std::make_unique<SentencePieceEncoder>(definition);
}

}  // namespace metro::text
