#include "base/utf8.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer.hpp"

#include <utility>

namespace metro {

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, TextPart part)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      num_spaces_to_drop_(part == TextPart::whole ? tokenizer.decoder_rules().num_leading_spaces : 0) {}

std::string StreamingDecoder::push(std::int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) {
    return {};
  }
  std::string_view bytes = tokenizer_->token_bytes(id);
  while (num_spaces_to_drop_ > 0 && !bytes.empty()) {
    const bool is_space = bytes.front() == ' ';
    bytes.remove_prefix(is_space ? 1 : 0);
    num_spaces_to_drop_ = is_space ? num_spaces_to_drop_ - 1 : 0;
  }
  pending_ += bytes;
  // All that a later token cannot change: everything but a character cut off at the end (at most three bytes).
  std::size_t settled = 0;
  while (settled < pending_.size()) {
    const text::Utf8Sequence sequence = text::sequence_at(pending_, settled);
    if (sequence.kind == text::SequenceKind::truncated) {
      break;
    }
    settled += sequence.length;
  }
  std::string given_out;
  text::append_with_replacement(std::string_view(pending_).substr(0, settled),
                                tokenizer_->decoder_rules().replaced_unit(), given_out);
  pending_.erase(0, settled);
  return given_out;
}

std::string StreamingDecoder::finish() {
  std::string given_out;
  text::append_with_replacement(std::exchange(pending_, {}), tokenizer_->decoder_rules().replaced_unit(), given_out);
  return given_out;
}

}  // namespace metro
