// What happens to text before it is split: Unicode normal forms, a text put before it, texts replaced. Normal forms are
// as in the tokenizers library, whose tables are those of Unicode 9: characters that came later stay as they are and
// where they are, because models have been trained on that.
#pragma once

#include "tokenizer/regex.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace metro::text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `utf8` in a normal form. `utf8` must be valid UTF-8. Time is O(n log n), also for long runs of combining marks.
std::string normalized(std::string_view utf8, NormalForm form);

// `text` with every occurrence of `pattern`, which is not empty, replaced by `content`.
std::string with_text_replaced(std::string_view text, std::string_view pattern, std::string_view content);

// Puts a text before every text that is not empty.
struct PrependRule {
  std::string prefix;
};

// Puts `content` in the place of every match.
struct ReplaceRule {
  std::string pattern;
  Regex::Syntax syntax = Regex::Syntax::literal;
  std::string content;
};

using NormalizationRule = std::variant<NormalForm, PrependRule, ReplaceRule>;

// One rule after the other; no rule leaves the text as it is.
class Normalizer {
 public:
  // Throws Error(checkpoint), message beginning with `origin`, for an expression that is not supported.
  Normalizer(const std::vector<NormalizationRule>& rules, const std::string& origin);

  // `utf8` must be valid UTF-8, and so is what comes out.
  std::string normalize(std::string_view utf8) const;

 private:
  struct Step {
    NormalizationRule rule;
    std::optional<Regex> regex;  // of a replacement by an expression
  };

  std::vector<Step> steps_;
};

}  // namespace metro::text
