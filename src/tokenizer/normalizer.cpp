#include "tokenizer/normalizer.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace metro::text {

namespace {

using CodePoint = utf8proc_int32_t;

// The longest decomposition of one character has 18 code points.
constexpr std::size_t max_decomposition = 32;

// Characters after Unicode 9 that later versions decompose, compose or reorder. Found by asking tokenizers 0.23.3 about
// every character that utf8proc 2.8 (Unicode 15) changes; ranges join over characters that no version changes.
struct CharacterRange {
  CodePoint first;
  CodePoint last;
};
constexpr auto later_characters = std::to_array<CharacterRange>({
    {0x7FD, 0x7FD},     {0x898, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
    {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
    {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA}, {0x10D24, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x11A99}, {0x11D42, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E030, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
});

bool is_ascii(std::string_view utf8) {
  return std::all_of(utf8.begin(), utf8.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

utf8proc_option_t options_of(NormalForm form) {
  const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool is_composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  int options = UTF8PROC_STABLE | (is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (is_compatible) {
    options |= UTF8PROC_COMPAT;
  }
  return static_cast<utf8proc_option_t>(options);
}

int combining_class(CodePoint code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

bool is_later(CodePoint code_point) {
  const auto range = std::lower_bound(later_characters.begin(), later_characters.end(), code_point,
                                      [](const CharacterRange& r, CodePoint c) { return r.last < c; });
  return range != later_characters.end() && range->first <= code_point;
}

void append_decomposed(CodePoint code_point, utf8proc_option_t options, std::vector<CodePoint>& code_points) {
  std::array<CodePoint, max_decomposition> parts{};
  int boundary_class = 0;
  const utf8proc_ssize_t num_parts = utf8proc_decompose_char(
      code_point, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary_class);
  METRO_REQUIRE(num_parts >= 0 && num_parts <= static_cast<utf8proc_ssize_t>(parts.size()), utf8proc_errmsg(num_parts));
  code_points.insert(code_points.end(), parts.begin(), parts.begin() + num_parts);
}

// Stable sort of each run of combining marks. The library's own way takes quadratic time, which a request made of a
// million marks would use against us.
void order_marks(std::vector<CodePoint>& code_points) {
  auto run = code_points.begin();
  while (run != code_points.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto run_end = std::find_if(run, code_points.end(), [](CodePoint c) { return combining_class(c) == 0; });
    std::stable_sort(run, run_end, [](CodePoint a, CodePoint b) { return combining_class(a) < combining_class(b); });
    run = run_end;
  }
}

void append_utf8(CodePoint code_point, std::string& utf8) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t num_bytes = utf8proc_encode_char(code_point, bytes.data());
  METRO_REQUIRE(num_bytes > 0, "a normal form holds no invalid code point");
  utf8.append(bytes.begin(), bytes.begin() + num_bytes);
}

// Finishes decomposed code points, appends them to `utf8` and empties them.
void append_normal(std::vector<CodePoint>& code_points, utf8proc_option_t options, std::string& utf8) {
  order_marks(code_points);
  if ((options & UTF8PROC_COMPOSE) != 0 && !code_points.empty()) {
    const utf8proc_ssize_t length =
        utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
    METRO_REQUIRE(length >= 0, utf8proc_errmsg(length));
    code_points.resize(static_cast<std::size_t>(length));
  }
  for (const CodePoint code_point : code_points) {
    append_utf8(code_point, utf8);
  }
  code_points.clear();
}

std::string with_matches_replaced(std::string_view text, const Regex& regex, std::string_view content) {
  std::string result;
  std::size_t previous_end = 0;
  Regex::Matches matches(regex, text);
  while (const auto match = matches.next()) {
    result.append(text, previous_end, match->begin - previous_end).append(content);
    previous_end = match->end;
  }
  return result.append(text, previous_end);
}

}  // namespace

std::string with_text_replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  METRO_REQUIRE(!pattern.empty(), "the empty text would match everywhere");
  std::string result;
  std::size_t previous_end = 0;
  for (std::size_t at = text.find(pattern); at != text.npos; at = text.find(pattern, previous_end)) {
    result.append(text, previous_end, at - previous_end).append(content);
    previous_end = at + pattern.size();
  }
  return result.append(text, previous_end);
}

std::string normalized(std::string_view utf8, NormalForm form) {
  if (is_ascii(utf8)) {
    return std::string(utf8);
  }
  const utf8proc_option_t options = options_of(form);
  std::string result;
  result.reserve(utf8.size());
  std::vector<CodePoint> pending;
  for (std::size_t at = 0; at < utf8.size(); at += sequence_at(utf8, at).length) {
    const auto character = static_cast<CodePoint>(character_at(utf8, at));
    if (is_later(character)) {
      append_normal(pending, options, result);
      append_utf8(character, result);
    } else {
      append_decomposed(character, options, pending);
    }
  }
  append_normal(pending, options, result);
  return result;
}

Normalizer::Normalizer(const std::vector<NormalizationRule>& rules, const std::string& origin) {
  for (const NormalizationRule& rule : rules) {
    steps_.push_back({rule, std::nullopt});
    const auto* replace = std::get_if<ReplaceRule>(&rule);
    if (replace != nullptr && replace->syntax != Regex::Syntax::literal) {
      steps_.back().regex.emplace(replace->pattern, replace->syntax, origin);
    }
  }
}

std::string Normalizer::normalize(std::string_view utf8) const {
  std::string text(utf8);
  for (const auto& [rule, regex] : steps_) {
    if (const auto* form = std::get_if<NormalForm>(&rule)) {
      text = normalized(text, *form);
    } else if (const auto* prepend = std::get_if<PrependRule>(&rule)) {
      text.insert(0, text.empty() ? std::string() : prepend->prefix);
    } else {
      const auto& replace = std::get<ReplaceRule>(rule);
      text = regex.has_value() ? with_matches_replaced(text, *regex, replace.content)
                               : with_text_replaced(text, replace.pattern, replace.content);
    }
  }
  return text;
}

}  // namespace metro::text
