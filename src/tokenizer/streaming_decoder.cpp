#include "base/utf8.hpp"
#include "tokenizer/tokenizer.hpp"

#include <utility>

namespace metro {

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamingDecoder::push(std::int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) {
    return {};
  }
  pending_ += tokenizer_->token_bytes(id);
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
  text::append_with_replacement(std::string_view(pending_).substr(0, settled), given_out);
  pending_.erase(0, settled);
  return given_out;
}

std::string StreamingDecoder::finish() {
  std::string given_out;
  text::append_with_replacement(std::exchange(pending_, {}), given_out);
  return given_out;
}

}  // namespace metro
