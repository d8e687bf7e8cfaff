// Lines that a stranger may send: each is rejected with its reason, and the line behind it is read.
#include "requests/reader_harness.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

using metro::test::read_text;

namespace {

// `line` is rejected with a message that contains `text`, and a good line behind it accepted.
void expect_rejection(const std::string& line, const std::string& text) {
  CAPTURE(line.substr(0, 200));
  const auto result = read_text(line + "\n{\"prompt\": [1]}\n");

  CHECK(result.accepted.size() == 1);
  REQUIRE(result.rejected.size() == 1);
  CHECK_THAT(result.rejected[0].message, Catch::Matchers::Contains(text));
  CHECK(result.rejected[0].message.size() < 1000);
}

std::string line_with(const std::string& field, const std::string& value) {
  return fmt::format(R"({{"prompt": [1], "{}": {}}})", field, value);
}

}  // namespace

TEST_CASE("a line that is not UTF-8, has a NUL byte, or is nested deeply is rejected") {
  expect_rejection("{\"prompt\": [1], \"user\": \"\xff\xfe\"}", "UTF-8");
  expect_rejection("{\"prompt\": [1], \"user\": \"\xed\xa0\x80\"}", "UTF-8");  // half of a surrogate pair
  expect_rejection("{\"prompt\": [1], \"user\": \"\xc0\xaf\"}", "UTF-8");      // a slash in two bytes
  expect_rejection(std::string("{\"prompt\": [1]\0}", 16), "NUL byte at column 15");
  expect_rejection(fmt::format("{{\"prompt\": {}}}", std::string(100'000, '[') + std::string(100'000, ']')),
                   "nested deeper than 64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  expect_rejection(objects, "nested deeper than 64 levels");
}

TEST_CASE("a key that appears twice is rejected by name, at any depth, however it is written") {
  expect_rejection(R"({"prompt": [1], "prompt": [2]})", "key \"prompt\" appears twice");
  expect_rejection(R"({"prompt": [1], "\u0070rompt": [2]})", "key \"prompt\" appears twice");
  expect_rejection(R"({"prompt": [1], "logit_bias": {"5": 1, "5": 2}})", "key \"5\" appears twice");
  expect_rejection(R"({"custom_id": "a", "custom_id": "b", "prompt": [1]})", "key \"custom_id\" appears twice");
  const std::string longest(100'000, 'k');
  expect_rejection(fmt::format(R"({{"{0}": 1, "{0}": 2}})", longest), "kkk...\" appears twice");
}

TEST_CASE("numbers outside of what a field may have are rejected, also those beyond 64 bits and no numbers") {
  const std::vector<std::pair<std::string, std::string>> fields = {{"max_tokens", "max_tokens"},
                                                                   {"seed", "seed"},
                                                                   {"top_p", "top_p"},
                                                                   {"top_k", "top_k"},
                                                                   {"n", "n "},
                                                                   {"logprobs", "logprobs"},
                                                                   {"min_tokens", "min_tokens"},
                                                                   {"arrival_s", "arrival_s"}};
  for (const auto& [field, text] : fields) {
    for (const std::string number : {"-9223372036854775808", "-5", "18446744073709551616", "1e300"}) {
      if (field == "seed" && number != "1e300" && number != "18446744073709551616") {
        continue;  // seeds may be negative
      }
      if (field == "top_k" && number == "-5") {
        continue;  // below 0 some clients mean all
      }
      expect_rejection(line_with(field, number), text);
    }
    expect_rejection(line_with(field, "NaN"), "invalid literal");
    expect_rejection(line_with(field, "1e999"), "number overflow");
    expect_rejection(line_with(field, "9223372036854775808"), text);
  }
}

TEST_CASE("a temperature may be any number from 0 and nothing else") {
  for (const std::string number : {"-1", "-1e-300", "\"1\"", "true"}) {
    expect_rejection(line_with("temperature", number), "temperature");
  }
  expect_rejection(line_with("temperature", "NaN"), "invalid literal");
  expect_rejection(line_with("temperature", "1e999"), "number overflow");
}

TEST_CASE("token ids outside the vocabulary are rejected") {
  for (const std::string id : {"-1", "4294967296", "9223372036854775808", "18446744073709551616", "1.0", "null"}) {
    expect_rejection(fmt::format("{{\"prompt\": [{}]}}", id), "prompt");
  }
  expect_rejection("{\"prompt\": [1e999]}", "number overflow");
}

TEST_CASE("a name as long as a page is shortened where it is quoted") {
  expect_rejection(line_with(std::string(5000, 'x'), "1"), "unknown field \"xxx");
  expect_rejection(fmt::format("\"{}\"", std::string(5000, 'x')), "a line must be a JSON object");
}
