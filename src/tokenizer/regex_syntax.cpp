#include "tokenizer/regex_syntax.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace metro::text {

namespace {

// White_Space and its complement as ranges: these work inside of a class, negated or not, in every version of PCRE2.
constexpr std::string_view space_ranges =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view no_space_ranges =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// Ignoring case, Oniguruma also lets one character stand for such a pair ("ss" for a sharp s); PCRE2 does not.
constexpr std::array<std::string_view, 5> folding_pairs = {"ss", "ff", "fi", "fl", "st"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& origin) : pattern_(pattern), origin_(origin) {}

  std::string translate() {
    // As it stands this searches every run of spaces once from each of its characters. If a run does not match from its
    // first character it matches from none, so only run starts need a try: linear instead of quadratic time.
    if (pattern_ == R"(\s+$)") {
      return fmt::format("(?<![{0}])[{0}]+$", space_ranges);
    }
    while (at_ < pattern_.size()) {
      translate_item();
    }
    return output_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error(ExitCode::checkpoint, fmt::format("{}: regular expression {:?} is not supported: {} at byte {}",
                                                  origin_, pattern_, what, at_));
  }

  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool ignores_case() const { return std::find(groups_.begin(), groups_.end(), true) != groups_.end(); }

  void copy(std::size_t num_bytes) {
    output_ += pattern_.substr(at_, num_bytes);
    at_ += num_bytes;
  }

  void translate_item() {
    const char c = pattern_[at_];
    const bool was_literal = std::exchange(is_after_literal_, false);
    if (c == '(') {
      open_group();
    } else if (c == ')') {
      if (groups_.empty()) {
        refuse("unmatched )");
      }
      groups_.pop_back();
      copy(1);
    } else if (c == '[') {
      translate_class();
    } else if (c == '\\') {
      translate_escape(false);
    } else if (c == '{') {
      copy_interval();
    } else if (c == '*' || c == '+' || c == '?') {
      copy(1);
      if (starts_with("?") || starts_with("+")) {
        copy(1);
      }
    } else {
      copy_literal(was_literal);
    }
  }

  void copy_literal(bool is_after_literal) {
    const std::size_t length = sequence_at(pattern_, at_).length;
    if (ignores_case()) {
      require_simple_folding(is_after_literal);
    }
    is_after_literal_ = is_letter(pattern_[at_]);
    copy(length);
  }

  void require_simple_folding(bool is_after_literal) const {
    if (sequence_at(pattern_, at_).length > 1) {
      refuse("a character outside of ASCII in (?i:...)");
    }
    if (!is_after_literal) {
      return;
    }
    std::string pair(pattern_.substr(at_ - 1, 2));
    std::transform(pair.begin(), pair.end(), pair.begin(), [](char c) { return is_letter(c) ? char(c | 0x20) : c; });
    if (std::find(folding_pairs.begin(), folding_pairs.end(), pair) != folding_pairs.end()) {
      refuse(fmt::format("\"{}\" in (?i:...), which can match one character", pair));
    }
  }

  void open_group() {
    constexpr std::array<std::string_view, 7> openings = {"(?i:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const auto opening = std::find_if(openings.begin(), openings.end(), [&](auto text) { return starts_with(text); });
    if (opening == openings.end() && (starts_with("(?") || starts_with("(*"))) {
      refuse(fmt::format("group {}", pattern_.substr(at_, 3)));
    }
    if (ignores_case()) {
      refuse("a group in (?i:...)");
    }
    groups_.push_back(starts_with("(?i:"));
    copy(opening == openings.end() ? 1 : opening->size());
  }

  // {n}, {n,} and {n,m}; behind them only a ? of which Ruby and PCRE2 think alike.
  void copy_interval() {
    std::size_t end = at_ + 1;
    bool has_comma = false;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || (pattern_[end] == ',' && !has_comma))) {
      has_comma = has_comma || pattern_[end] == ',';
      ++end;
    }
    const bool is_interval = end < pattern_.size() && pattern_[end] == '}' && is_digit(pattern_[at_ + 1]);
    if (ignores_case()) {
      refuse("an interval in (?i:...)");
    }
    if (!is_interval) {
      refuse("{ that opens no {n}, {n,} or {n,m}");
    }
    copy(end + 1 - at_);
    if (starts_with("+") || (starts_with("?") && !has_comma)) {
      refuse("a repeated interval");
    }
    if (starts_with("?")) {
      copy(1);
    }
  }

  void translate_class() {
    if (ignores_case()) {
      const std::size_t end = pattern_.find(']', at_);
      const std::string_view inside = pattern_.substr(at_ + 1, end == pattern_.npos ? end : end - at_ - 1);
      if (inside.empty() || !std::all_of(inside.begin(), inside.end(), is_letter)) {
        refuse("a class other than ASCII letters in (?i:...)");
      }
    }
    copy(1);
    if (starts_with("^")) {
      copy(1);
    }
    if (starts_with("]")) {
      refuse("] as the first character of a class");
    }
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[' || starts_with("&&")) {
        refuse("a class inside of a class, or &&");
      }
      if (pattern_[at_] == '\\') {
        translate_escape(true);
      } else {
        copy(sequence_at(pattern_, at_).length);
      }
    }
    if (at_ == pattern_.size()) {
      refuse("a class without ]");
    }
    copy(1);
  }

  void translate_escape(bool is_in_class) {
    if (at_ + 1 == pattern_.size()) {
      refuse("\\ at the end");
    }
    const char c = pattern_[at_ + 1];
    if (c == 's' || c == 'S') {
      const std::string_view ranges = c == 's' ? space_ranges : no_space_ranges;
      output_ += is_in_class ? std::string(ranges) : fmt::format("[{}]", ranges);
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      translate_property();
    } else if (c == 'x' || c == 'u') {
      translate_code_point();
    } else if (c == 'v') {
      output_ += R"(\x{b})";
      at_ += 2;
    } else if (std::string_view("rntfdD").find(c) != std::string_view::npos) {
      copy(2);
    } else if (static_cast<unsigned char>(c) < 0x80 && !is_letter(c) && !is_digit(c)) {
      copy(2);
    } else {
      refuse(fmt::format("\\{}", c));
    }
  }

  // \p{L}: a general category, alike in both; \p{Han}: a script.
  void translate_property() {
    if (ignores_case()) {
      refuse("\\p in (?i:...)");
    }
    const std::size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == pattern_.npos) {
      refuse("\\p without {...}");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    const bool is_negated = name.starts_with('^');
    name.remove_prefix(is_negated ? 1 : 0);
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_letter)) {
      refuse(fmt::format("property {:?}", name));
    }
    output_ +=
        fmt::format("\\{}{{{}{}{}}}", pattern_[at_ + 1], is_negated ? "^" : "", name.size() > 2 ? "sc:" : "", name);
    at_ = close + 1;
  }

  // \x{H...} and \uHHHH.
  void translate_code_point() {
    const bool is_braced = starts_with("\\x{");
    if (!is_braced && !starts_with("\\u")) {
      refuse("\\x without {...}");
    }
    const std::size_t begin = at_ + (is_braced ? 3 : 2);
    const std::size_t end = is_braced ? pattern_.find('}', begin) : std::min(begin + 4, pattern_.size());
    const std::string_view digits = end == pattern_.npos ? "" : pattern_.substr(begin, end - begin);
    const bool has_digits = std::all_of(digits.begin(), digits.end(),
                                        [](char c) { return is_digit(c) || (is_letter(c) && (c | 0x20) <= 'f'); });
    if (!has_digits || digits.empty() || digits.size() > 6 || (!is_braced && digits.size() != 4)) {
      refuse("\\x or \\u without a code point");
    }
    output_ += fmt::format("\\x{{{}}}", digits);
    at_ = end + (is_braced ? 1 : 0);
  }

  std::string_view pattern_;
  const std::string& origin_;
  std::string output_;
  std::size_t at_ = 0;
  std::vector<bool> groups_;  // open groups: is it (?i:...)?
  bool is_after_literal_ = false;
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern, const std::string& origin) {
  return Translator(pattern, origin).translate();
}

}  // namespace metro::text
