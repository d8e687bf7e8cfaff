// The interface of Tokenizer and StreamingDecoder beyond the recorded pairs.
#include "support/expect_error.hpp"
#include "tokenizer/tokenizer_files.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

using metro::ExitCode;
using metro::StreamingDecoder;
using metro::Tokenizer;
using metro::test::expect_error;
using metro::test::files_in_memory;
using metro::test::load;
using metro::test::small_tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

std::string repeated(const std::string& unit, std::size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) {
    text += unit;
  }
  return text;
}

// Merges by definition: as long as there is one, apply the earliest rule at its leftmost place. Quadratic and worse.
Ids merged_by_definition(const std::string& word, const std::vector<std::pair<Ids, std::int32_t>>& rules) {
  Ids ids;
  for (const char byte : word) {
    ids.push_back(static_cast<unsigned char>(byte));
  }
  for (std::size_t rule = 0; rule < rules.size();) {
    const auto& [pair, made] = rules[rule];
    const auto place = std::search(ids.begin(), ids.end(), pair.begin(), pair.end());
    if (place == ids.end()) {
      ++rule;
      continue;
    }
    *place = made;
    ids.erase(place + 1);
    rule = 0;
  }
  return ids;
}

}  // namespace

TEST_CASE("no tokenizer file at all is no tokenizer") {
  CHECK(Tokenizer::load(files_in_memory({})) == nullptr);
  CHECK(Tokenizer::load(files_in_memory({{"tokenizer_config.json", "{}"}})) == nullptr);
}

TEST_CASE("ids, bytes and flags of tokens can be looked up") {
  const auto tokenizer = load(small_tokenizer());

  CHECK(tokenizer->vocab_size() == 259);
  CHECK(tokenizer->token_id("abc") == 257);
  CHECK(tokenizer->token_id("<end>") == 258);
  CHECK(tokenizer->token_id("Ġ") == 0x20);
  CHECK_FALSE(tokenizer->token_id("abcd").has_value());
  CHECK(tokenizer->token_bytes(257) == "abc");
  CHECK(tokenizer->token_bytes(0) == std::string(1, '\0'));
  CHECK(tokenizer->token_bytes(0xE4) == "\xE4");
  CHECK(tokenizer->token_bytes(259).empty());
  CHECK(tokenizer->token_bytes(-1).empty());
  CHECK(tokenizer->is_special(258));
  CHECK_FALSE(tokenizer->is_special(257));
  CHECK_FALSE(tokenizer->is_special(-1));
}

TEST_CASE("special tokens are encoded where they stand and left out of decoding on demand") {
  const auto tokenizer = load(small_tokenizer());

  const Ids ids = tokenizer->encode("abc<end>ab<end");

  CHECK(ids == Ids{257, 258, 256, '<', 'e', 'n', 'd'});
  CHECK(tokenizer->decode(ids, false) == "abc<end>ab<end");
  CHECK(tokenizer->decode(ids, true) == "abcab<end");
}

TEST_CASE("ids outside of the vocabulary add nothing to the text") {
  const auto tokenizer = load(small_tokenizer());

  CHECK(tokenizer->decode(Ids{'x', -1, 259, 1 << 30, 'y'}, false) == "xy");
}

TEST_CASE("text that is not UTF-8 is refused with the offset of the first bad byte") {
  const auto tokenizer = load(small_tokenizer());

  expect_error(ExitCode::input, {"not valid UTF-8", "byte 2"}, [&] { tokenizer->encode("ab\xFFz"); });
  expect_error(ExitCode::input, {"byte 1"}, [&] { tokenizer->encode("a\xE6\xB1"); });         // cut off
  expect_error(ExitCode::input, {"byte 0"}, [&] { tokenizer->encode("\xED\xA0\x80"); });      // a surrogate
  expect_error(ExitCode::input, {"byte 0"}, [&] { tokenizer->encode("\xC0\x80"); });          // too long a form
  expect_error(ExitCode::input, {"byte 0"}, [&] { tokenizer->encode("\xF4\x90\x80\x80"); });  // above U+10FFFF
}

TEST_CASE("decoding replaces each maximal part that is no UTF-8 by one replacement character") {
  const auto tokenizer = load(small_tokenizer());
  const std::string r = "\xEF\xBF\xBD";

  // Unicode, section 3.9, tables 3-8 to 3-11.
  CHECK(tokenizer->decode(Ids{0xC0, 0xAF, 0xE0, 0x80, 0xBF, 0xF0, 0x81, 0x82, 0x41}, false) ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(tokenizer->decode(Ids{0xED, 0xA0, 0x80, 0xED, 0xBF, 0xBF, 0xED, 0xAF, 0x41}, false) ==
        r + r + r + r + r + r + r + r + "A");
  CHECK(tokenizer->decode(Ids{0xF4, 0x91, 0x92, 0x93, 0xFF, 0x41, 0x80, 0xBF, 0x42}, false) ==
        r + r + r + r + r + "A" + r + r + "B");
  CHECK(tokenizer->decode(Ids{0xE1, 0x80, 0xE2, 0xF0, 0x91, 0x92, 0xF1, 0xBF, 0x41}, false) == r + r + r + r + "A");
  CHECK(tokenizer->decode(Ids{0xE6, 0xB1}, false) == r);
}

TEST_CASE("streaming holds a character back until its last byte and gives what decoding the whole gives") {
  const auto tokenizer = load(small_tokenizer());

  StreamingDecoder decoder(*tokenizer, true);
  CHECK(decoder.push('x') == "x");
  CHECK(decoder.push(0xE6).empty());
  CHECK(decoder.push(258).empty());  // special and skipped
  CHECK(decoder.push(0xB1).empty());
  CHECK(decoder.push(0x89) == "汉");
  CHECK(decoder.push(0xF0).empty());
  CHECK(decoder.push('y') == "\xEF\xBF\xBDy");
  CHECK(decoder.push(0xE2).empty());
  CHECK(decoder.finish() == "\xEF\xBF\xBD");
  CHECK(decoder.finish().empty());

  std::mt19937 generator(11);
  for (int round = 0; round < 300; ++round) {
    Ids ids(20);
    std::generate(ids.begin(), ids.end(), [&] {
      return static_cast<std::int32_t>(generator() % 2 != 0 ? generator() % 259 : 0x80 + generator() % 0x78);
    });
    StreamingDecoder streaming(*tokenizer, false);
    std::string text;
    for (const std::int32_t id : ids) {
      text += streaming.push(id);
    }
    text += streaming.finish();
    CHECK(text == tokenizer->decode(ids, false));
  }
}

TEST_CASE("short and long words are merged as the definition says") {
  auto file = small_tokenizer();
  file["added_tokens"] = nlohmann::json::array();
  file["pre_tokenizer"]["use_regex"] = false;  // the whole text is one word
  auto& vocab = file["model"]["vocab"];
  const std::vector<std::pair<std::string, std::string>> merges = {{"b", "a"},   {"a", "b"},   {"a", "a"},
                                                                   {"ab", "ab"}, {"aa", "aa"}, {"ba", "aa"},
                                                                   {"c", "ab"},  {"aba", "b"}, {"ab", "a"}};
  vocab.erase("ab");
  vocab.erase("abc");
  file["model"]["merges"] = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) {
      vocab[left + right] = vocab.size();
    }
    file["model"]["merges"].push_back(left + " " + right);
  }
  std::vector<std::pair<Ids, std::int32_t>> rules;
  for (const auto& [left, right] : merges) {
    rules.push_back({{vocab.at(left), vocab.at(right)}, vocab.at(left + right)});
  }
  const auto tokenizer = load(file);

  std::mt19937 generator(5);
  for (int round = 0; round < 400; ++round) {
    std::string word(1 + generator() % 120, 'a');
    std::generate(word.begin(), word.end(), [&] { return "aaabbc"[generator() % 6]; });
    INFO(word);
    CHECK(tokenizer->encode(word) == merged_by_definition(word, rules));
  }
}

TEST_CASE("texts of a megabyte survive the way to ids and back") {
  const std::string unit = GENERATE(as<std::string>(), "a", " ", "\n", "ab", "abc", "\xF0\x9F\x98\x80", "汉字", "1",
                                    "'s", "!", " \n", "<end", "<end>");
  auto file = small_tokenizer();
  const auto tokenizer = load(file);
  const std::string text = repeated(unit, 1'000'000);

  const Ids ids = tokenizer->encode(text);

  CHECK(ids.size() <= text.size());
  CHECK((tokenizer->decode(ids, false) == text));  // in parentheses: a failure must not print the text
}

TEST_CASE("a word of a megabyte is merged to the end") {
  auto file = small_tokenizer();
  auto& vocab = file["model"]["vocab"];
  file["added_tokens"] = nlohmann::json::array();
  std::string token = "a";
  for (int doubling = 0; doubling < 8; ++doubling) {
    file["model"]["merges"].push_back(token + " " + token);
    token += token;
    vocab[token] = 258 + doubling;
  }
  const auto tokenizer = load(file);

  const Ids ids = tokenizer->encode(std::string(1'000'000, 'a'));

  CHECK((ids == [] {
    Ids expected(3906, 265);
    expected.push_back(263);  // 1000000 = 3906 * 256 + 64
    return expected;
  }()));
}

TEST_CASE("a million marks out of order are put into normal form") {
  auto file = small_tokenizer();
  file["normalizer"] = {{"type", "NFD"}};
  const auto tokenizer = load(file);
  const std::string acute = "\xCC\x81";      // U+0301, class 230
  const std::string dot_below = "\xCC\xA3";  // U+0323, class 220
  const std::string text = std::string("e").append(repeated(acute + dot_below, 1'000'000));

  const std::string decoded = tokenizer->decode(tokenizer->encode(text), false);

  CHECK((decoded == std::string("e").append(repeated(dot_below, 500'000)).append(repeated(acute, 500'000))));
}

TEST_CASE("spaces before the end of a line are found in linear time by the expression that ends in $") {
  auto file = small_tokenizer();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "\\s+$"}}}, {"behavior", "Removed"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const auto tokenizer = load(file);

  CHECK(tokenizer->decode(tokenizer->encode("a \n b  \n"), false) == "a\n b");
  // A quadratic search would run into the time limit of the test.
  const std::string text = std::string(1'000'000, ' ') + "1";
  CHECK((tokenizer->decode(tokenizer->encode(text), false) == text));
}
