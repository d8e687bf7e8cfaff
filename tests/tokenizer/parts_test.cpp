// Regular expressions: which are taken over, which are refused, and how splits treat their matches.
#include "support/expect_error.hpp"
#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/regex_syntax.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::test::expect_error;
using metro::text::PreTokenizer;
using metro::text::Regex;
using metro::text::SplitBehavior;

namespace {

using Words = std::vector<std::string>;

Words split(const std::string& pattern, const std::string& text, SplitBehavior behavior = SplitBehavior::isolated,
            bool invert = false, Regex::Syntax syntax = Regex::Syntax::oniguruma) {
  const PreTokenizer pre_tokenizer({.splits = {{pattern, syntax, behavior, invert}}}, "test");
  Words words;
  pre_tokenizer.split(text, true, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace

// Expected words of the following three cases: tokenizers 0.23.3, pre_tokenizers.Split.
TEST_CASE("a split treats matches as its behavior says") {
  const std::string text = "-The-final--countdown--";
  using enum SplitBehavior;

  CHECK(split("-", text, isolated) == Words{"-", "The", "-", "final", "-", "-", "countdown", "-", "-"});
  CHECK(split("-", text, removed) == Words{"The", "final", "countdown"});
  CHECK(split("-", text, removed, true) == Words{"-", "-", "-", "-", "-", "-"});
  CHECK(split("-", text, merged_with_previous) == Words{"-", "The-", "final-", "-", "countdown-", "-"});
  CHECK(split("-", text, merged_with_previous, true) == Words{"-The", "-final", "-", "-countdown", "-", "-"});
  CHECK(split("-", text, merged_with_next) == Words{"-The", "-final", "-", "-countdown", "-", "-"});
  CHECK(split("-", text, merged_with_next, true) == Words{"-", "The-", "final-", "-", "countdown-", "-"});
  CHECK(split("-", text, contiguous) == Words{"-", "The", "-", "final", "--", "countdown", "--"});
}

TEST_CASE("empty matches part the text where they are") {
  CHECK(split("(?=b)", "abcb") == Words{"a", "bc", "b"});
  CHECK(split("", "aé汉") == Words{"a", "é", "汉"});
}

TEST_CASE("expressions mean what they mean to Oniguruma") {
  // White space is Unicode's: U+0085 is, U+180E, U+200B and U+001C are not.
  CHECK(split("\\s",
              "a\u180eb\u0085c\u200bd\x1c"
              "f") == Words{"a\u180eb", "\u0085",
                            "c\u200bd\x1c"
                            "f"});
  CHECK(split("[^\\S\\n]+", "a \n\tb") == Words{"a", " ", "\n", "\t", "b"});
  // The long s is an s in another case, the Kelvin sign a k.
  CHECK(split("(?i:'s|k)", "'S'\u017f \u212a") == Words{"'S", "'\u017f", " ", "\u212a"});
  // ^ and $ are about lines, and only a line feed ends one.
  CHECK(split("^a", "a\na\n") == Words{"a", "\n", "a", "\n"});
  CHECK(split(".+", "a\r\nb\u2028") == Words{"a\r", "\n", "b\u2028"});
  CHECK(split("\\v",
              "a\x0b"
              "b\x0c") == Words{"a", "\x0b", "b\x0c"});
  CHECK(split("\\u0062|\\x{63}", "abcd") == Words{"a", "b", "c", "d"});
  CHECK(split("\\p{^L}+", "ab12c") == Words{"ab", "12", "c"});
  CHECK(split("\\p{N}{1,3}", "12345") == Words{"123", "45"});
}

TEST_CASE("a literal pattern has no special characters") {
  CHECK(split("a.c", "abca.c", SplitBehavior::removed, false, Regex::Syntax::literal) == Words{"abc"});
}

TEST_CASE("scripts are supported by name") {
  CHECK(split("\\p{Han}+", "ab汉字c") == Words{"ab", "汉字", "c"});
}

TEST_CASE("expressions that PCRE2 might read in another way are refused by name") {
  const auto check_refused = [](const std::string& pattern, const char* construct) {
    INFO(pattern);
    expect_error(ExitCode::checkpoint, {"f.json", "regular expression", "not supported", construct},
                 [&] { metro::text::to_pcre2_syntax(pattern, "f.json"); });
  };

  check_refused("\\w+", "\\w");
  check_refused("a\\b", "\\b");
  check_refused("\\h", "\\h");
  check_refused("(a)\\1", "\\1");
  check_refused("(?m:a)", "(?m");
  check_refused("(?i)a", "(?i");
  check_refused("(?<name>a)", "(?<");
  check_refused("(*UCP)a", "(*U");
  check_refused("[a[bc]]", "a class inside");
  check_refused("[a&&b]", "&&");
  check_refused("[[:alpha:]]", "a class inside");
  check_refused("[]a]", "first character");
  check_refused("[abc", "without ]");
  check_refused("\\p{N}{1,3}+", "repeated interval");
  check_refused("a{3}?", "repeated interval");
  check_refused("a{,3}", "{");
  check_refused("(?i:grosSe)", "\"ss\"");
  check_refused("(?i:é)", "ASCII");
  check_refused("(?i:[a-z])", "ASCII letters");
  check_refused("(?i:(?:a))", "a group");
  check_refused("\\pL", "\\p");
  check_refused("\\p{L1}", "property");
  check_refused("\\xff", "\\x");
  check_refused("\\u12", "\\u");
  check_refused("a)", "unmatched");
  check_refused("a\\", "at the end");
}

TEST_CASE("an expression that PCRE2 cannot compile is refused with its reason") {
  expect_error(ExitCode::checkpoint, {"f.json", "(a", "missing closing parenthesis"},
               [] { const Regex regex("(a", Regex::Syntax::oniguruma, "f.json"); });
  expect_error(ExitCode::checkpoint, {"f.json", "Klingon"},
               [] { const Regex regex("\\p{Klingon}", Regex::Syntax::oniguruma, "f.json"); });
}

TEST_CASE("an expression that tries too many ways fails instead of splitting wrongly") {
  const Regex regex("(?:a+)+(?:a+)+(?:a+)+(?:a+)+$(?<=b)", Regex::Syntax::oniguruma, "f.json");
  const std::string text(4000, 'a');

  expect_error(ExitCode::input, {"cannot split a text of 4000 bytes", "match limit"}, [&] {
    Regex::Matches matches(regex, text);
    matches.next();
  });
}
