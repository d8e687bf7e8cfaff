// Stop strings in the text of tokens of the embedded model's tokenizer. Needs the tokenizer.
#include "requests/stop_watch.hpp"

#include "requests/tiny_tokenizer.hpp"

#include <catch2/catch.hpp>

using metro::SamplingOptions;
using metro::StopMatch;
using metro::StopWatch;
using metro::test::tiny_tokenizer;
using Ids = std::vector<std::int32_t>;

namespace {

SamplingOptions watched(std::vector<std::string> stop, std::int32_t min_tokens = 0) {
  SamplingOptions options;
  options.stop = std::move(stop);
  options.min_tokens = min_tokens;
  return options;
}

// "N:string_idx:begin-end" of the first match, N being the number of tokens by then; "" if there is none.
std::string first_match(const Ids& ids, const SamplingOptions& options) {
  const auto tokenizer = tiny_tokenizer();
  StopWatch watch(*tokenizer, options);
  for (const std::int32_t id : ids) {
    if (const auto match = watch.push(id)) {
      return std::to_string(watch.num_tokens()) + ":" + std::to_string(match->string_idx) + ":" +
             std::to_string(match->begin) + "-" + std::to_string(match->end);
    }
  }
  return "";
}

// One token per byte: the ids of the bytes themselves in this tokenizer.
Ids bytes_of(const std::string& text) {
  const auto tokenizer = tiny_tokenizer();
  Ids ids;
  for (const char byte : text) {
    for (std::int32_t id = 0; id < 256 + 20; ++id) {
      if (tokenizer->token_bytes(id) == std::string(1, byte)) {
        ids.push_back(id);
        break;
      }
    }
  }
  REQUIRE(ids.size() == text.size());
  return ids;
}

}  // namespace

TEST_CASE("a stop string is found with the token that completes it, across tokens and inside one") {
  const Ids letters = bytes_of("one, two");
  const Ids words = tiny_tokenizer()->encode("The dog was happy");

  CHECK(first_match(letters, watched({", t"})) == "6:0:3-6");
  CHECK(first_match(letters, watched({"o"})) == "1:0:0-1");
  CHECK(first_match(letters, watched({"one, two"})) == "8:0:0-8");
  CHECK(first_match(letters, watched({"one, two "})).empty());
  CHECK(first_match(letters, watched({"none"})).empty());
  REQUIRE(words.size() < 8);
  CHECK(first_match(words, watched({"og"})).substr(1) == ":0:5-7");
}

TEST_CASE("of several stop strings the one that ends first counts, then the first in the list") {
  const Ids letters = bytes_of("abcabd");
  const auto id_of = [](const std::string& text) { return tiny_tokenizer()->token_id(text); };

  CHECK(first_match(letters, watched({"abd", "ca", "bca"})) == "4:1:2-4");
  CHECK(first_match(letters, watched({"bca", "ca"})) == "4:0:1-4");
  // Both inside one token: not the longer, not the first in the list, but the one that ends first.
  REQUIRE(id_of("\u0120happy"));
  CHECK(first_match({*id_of("\u0120happy")}, watched({"happy", "pp", "p"})) == "1:2:3-4");
}

TEST_CASE("characters of several bytes are found when they are complete") {
  const Ids ids = bytes_of("caf\u00e9 \u65e5\u672c");

  CHECK(first_match(ids, watched({"\u00e9"})) == "5:0:3-5");
  CHECK(first_match(ids, watched({"\u672c", "\u65e5"})) == "9:1:6-9");
  CHECK(first_match(ids, watched({"\u65e5\u672c"})) == "12:0:6-12");
  CHECK(first_match(ids, watched({"\u00c3"})).empty());  // the first byte of é is no character
}

TEST_CASE("bytes that are no character count as U+FFFD once the next token settles it") {
  Ids ids = bytes_of("a\xe6\x97");
  ids.push_back(bytes_of("b")[0]);

  CHECK(first_match(ids, watched({"\ufffd"})) == "4:0:1-4");
  CHECK(first_match(ids, watched({"a\ufffdb"})) == "4:0:0-5");
}

TEST_CASE("what ends within the first min_tokens tokens does not count, what reaches beyond does") {
  const Ids letters = bytes_of("ababab");

  CHECK(first_match(letters, watched({"ab"}, 1)) == "2:0:0-2");
  CHECK(first_match(letters, watched({"ab"}, 2)) == "4:0:2-4");
  CHECK(first_match(letters, watched({"abab"}, 3)) == "4:0:0-4");
  CHECK(first_match(letters, watched({"abab"}, 4)) == "6:0:2-6");
  CHECK(first_match(letters, watched({"ab"}, 6)).empty());
}

TEST_CASE("special tokens have no text and do not interrupt a stop string") {
  Ids ids = bytes_of("ab");
  const std::int32_t end_token = 2045;
  REQUIRE(tiny_tokenizer()->is_special(end_token));
  ids.insert(ids.begin() + 1, end_token);

  CHECK(first_match(ids, watched({"ab"})) == "3:0:0-2");
  CHECK(first_match(ids, watched({"<|endoftext|>"})).empty());
}
