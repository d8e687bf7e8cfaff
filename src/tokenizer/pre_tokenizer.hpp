// Splits normalised text into words; merges never cross the border of a word.
#pragma once

#include "tokenizer/regex.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metro::text {

// What becomes of a match, as the tokenizers library names it.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// One splitting rule as a tokenizer file states it.
struct SplitRule {
  std::string pattern;
  Regex::Syntax syntax = Regex::Syntax::oniguruma;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // matches and the text between them change places
};

// Which pieces get the mark of a space before them if they do not begin with one.
enum class PrependScheme { always, first, never };

// SentencePiece's way: a space is written as a visible mark.
struct MetaspaceRule {
  std::string mark;
  PrependScheme scheme = PrependScheme::always;
  bool split = true;  // a word begins at every mark
};

struct PreTokenizerRules {
  std::vector<SplitRule> splits;                          // one after the other, each on the pieces of the one before
  bool add_prefix_space = false;                          // then: each piece that does not begin with a space gets one
  bool split_like_gpt2 = false;                           // then: GPT-2's expression
  std::optional<MetaspaceRule> metaspace = std::nullopt;  // or this
};

class PreTokenizer {
 public:
  // Throws Error(checkpoint), message beginning with `origin`, for an expression that is not supported.
  PreTokenizer(const PreTokenizerRules& rules, const std::string& origin);

  // Calls `take_word` with the words of `utf8` in order; none is empty; each lives only during the call. `begins_text`:
  // nothing comes before `utf8` in the text that it is a stretch of.
  void split(std::string_view utf8, bool begins_text, const std::function<void(std::string_view)>& take_word) const;

 private:
  struct Step {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
  };
  static void split_once(const Step& step, std::string_view text, std::vector<std::string_view>& pieces);
  // The piece with what comes before it, in `buffer` if it differs from `piece`. `is_first`: nothing stands before it.
  std::string_view prefixed(std::string_view piece, bool is_first, std::string& buffer) const;

  std::vector<Step> steps_;
  bool add_prefix_space_;
  std::optional<MetaspaceRule> metaspace_;
  std::optional<Step> last_step_;
};

}  // namespace metro::text
