#include "tokenizer/pre_tokenizer.hpp"

#include "tokenizer/normalizer.hpp"

namespace metro::text {

namespace {

// The expression that the file format implies for ByteLevel with use_regex.
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Joins matches and the text between them to pieces, as the behavior says.
class PieceBuilder {
 public:
  PieceBuilder(SplitBehavior behavior, std::string_view text, std::vector<std::string_view>& pieces)
      : behavior_(behavior), text_(text), pieces_(pieces) {}

  void add(Range section, bool is_match) {
    if (behavior_ == SplitBehavior::removed && is_match) {
      return;
    }
    if (has_open_ && joins_previous(is_match)) {
      open_.end = section.end;
    } else {
      finish();
      open_ = section;
      has_open_ = true;
    }
    was_match_ = is_match;
  }

  void finish() {
    if (open_.begin < open_.end) {
      pieces_.push_back(text_.substr(open_.begin, open_.end - open_.begin));
    }
  }

 private:
  bool joins_previous(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::merged_with_previous:
        return is_match && !was_match_;
      case SplitBehavior::merged_with_next:
        return !is_match && was_match_;
      case SplitBehavior::contiguous:
        return is_match == was_match_;
      case SplitBehavior::isolated:
      case SplitBehavior::removed:
        return false;
    }
    return false;
  }

  SplitBehavior behavior_;
  std::string_view text_;
  std::vector<std::string_view>& pieces_;
  Range open_{0, 0};  // the piece that the next section may still join
  bool has_open_ = false;
  bool was_match_ = false;
};

}  // namespace

PreTokenizer::PreTokenizer(const PreTokenizerRules& rules, const std::string& origin)
    : add_prefix_space_(rules.add_prefix_space), metaspace_(rules.metaspace) {
  for (const SplitRule& rule : rules.splits) {
    steps_.push_back({Regex(rule.pattern, rule.syntax, origin), rule.behavior, rule.invert});
  }
  if (rules.split_like_gpt2) {
    last_step_ = Step{Regex(gpt2_pattern, Regex::Syntax::oniguruma, origin), SplitBehavior::isolated, false};
  } else if (metaspace_.has_value() && metaspace_->split) {
    last_step_ = Step{Regex(metaspace_->mark, Regex::Syntax::literal, origin), SplitBehavior::merged_with_next, false};
  }
}

void PreTokenizer::split_once(const Step& step, std::string_view text, std::vector<std::string_view>& pieces) {
  PieceBuilder builder(step.behavior, text, pieces);
  Regex::Matches matches(step.regex, text);
  std::size_t previous_end = 0;
  while (const auto match = matches.next()) {
    if (previous_end < match->begin) {
      builder.add({previous_end, match->begin}, step.invert);
    }
    builder.add(*match, !step.invert);
    previous_end = match->end;
  }
  if (previous_end < text.size()) {
    builder.add({previous_end, text.size()}, step.invert);
  }
  builder.finish();
}

std::string_view PreTokenizer::prefixed(std::string_view piece, bool is_first, std::string& buffer) const {
  if (add_prefix_space_ && !piece.starts_with(' ')) {
    return buffer.assign(1, ' ').append(piece);
  }
  if (!metaspace_.has_value()) {
    return piece;
  }
  buffer = with_text_replaced(piece, " ", metaspace_->mark);
  const bool wants_mark =
      metaspace_->scheme == PrependScheme::always || (metaspace_->scheme == PrependScheme::first && is_first);
  if (wants_mark && !buffer.starts_with(metaspace_->mark)) {
    buffer.insert(0, metaspace_->mark);
  }
  return buffer;
}

void PreTokenizer::split(std::string_view utf8, bool begins_text,
                         const std::function<void(std::string_view)>& take_word) const {
  if (utf8.empty()) {
    return;
  }
  std::vector<std::string_view> pieces = {utf8};
  std::vector<std::string_view> next_pieces;
  for (const Step& step : steps_) {
    next_pieces.clear();
    for (const std::string_view piece : pieces) {
      split_once(step, piece, next_pieces);
    }
    pieces.swap(next_pieces);
  }
  std::string buffer;
  for (std::string_view piece : pieces) {
    piece = prefixed(piece, begins_text && piece.data() == utf8.data(), buffer);
    if (!last_step_.has_value()) {
      take_word(piece);
      continue;
    }
    next_pieces.clear();
    split_once(*last_step_, piece, next_pieces);
    for (const std::string_view word : next_pieces) {
      take_word(word);
    }
  }
}

}  // namespace metro::text
