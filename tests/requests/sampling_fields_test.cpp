// The fields that choose tokens and end completions: values, bounds, and the words of refusals.
#include "requests/request_fields.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using metro::LineError;
using metro::RequestDraft;
using metro::SamplingOptions;
using nlohmann::json;

namespace {

RequestDraft read(json body) {
  RequestDraft draft;
  draft.vocab_size = 100;
  body["prompt"] = {1, 2, 3};
  metro::read_request_fields(body, draft);
  return draft;
}

SamplingOptions options_of(const json& body) {
  return read(body).request.sampling;
}

// "field|message" of the error, or "" when the body is accepted.
std::string error_of(const json& body) {
  try {
    read(body);
  } catch (const LineError& error) {
    return error.field + "|" + error.what();
  }
  return "";
}

void check_errors(const std::string& field, const std::vector<json>& values, const std::string& allowed) {
  for (const json& value : values) {
    CHECK(error_of({{field, value}}) == field + "|" + field + " " + value.dump() + ": " + allowed);
  }
}

}  // namespace

TEST_CASE("sampling fields reach the request") {
  const auto draft = read({{"temperature", 0.7},
                           {"top_p", 0.9},
                           {"top_k", 40},
                           {"min_p", 0.05},
                           {"seed", -7},
                           {"n", 3},
                           {"best_of", 3},
                           {"presence_penalty", 0.5},
                           {"frequency_penalty", -0.5},
                           {"repetition_penalty", 1.2},
                           {"logit_bias", {{"10", 1}, {"9", -2.5}}},
                           {"stop_token_ids", {8, 5, 8}},
                           {"include_stop_str_in_output", true},
                           {"min_tokens", 4}});

  SamplingOptions expected;
  expected.top_p = 0.9;
  expected.top_k = 40;
  expected.min_p = 0.05;
  expected.presence_penalty = 0.5;
  expected.frequency_penalty = -0.5;
  expected.repetition_penalty = 1.2;
  expected.logit_bias = {{9, -2.5}, {10, 1.0}};
  expected.stop_token_ids = {5, 8};
  expected.min_tokens = 4;
  CHECK((draft.request.sampling == expected));
  CHECK(draft.temperature == 0.7);
  CHECK(draft.seed == -7);
  CHECK(draft.origin.num_samples == 3);
  CHECK(draft.origin.include_stop);
}

TEST_CASE("bounds of sampling fields are allowed") {
  CHECK(read({{"temperature", 0}}).temperature == 0.0);
  CHECK(read({{"temperature", 1e300}}).temperature == 1e300);
  CHECK(options_of({{"top_p", 1}}).top_p == 1.0);
  CHECK(options_of({{"top_p", 5e-324}}).top_p == 5e-324);
  CHECK(options_of({{"min_p", 0}}).min_p == 0.0);
  CHECK(options_of({{"min_p", 1}}).min_p == 1.0);
  CHECK(options_of({{"top_k", 1}}).top_k == 1);
  CHECK(options_of({{"presence_penalty", -2}}).presence_penalty == -2.0);
  CHECK(options_of({{"frequency_penalty", 2}}).frequency_penalty == 2.0);
  CHECK(options_of({{"repetition_penalty", 1e-9}}).repetition_penalty == 1e-9);
  CHECK(options_of({{"logit_bias", {{"0", -100}, {"99", 100}}}}).logit_bias.size() == 2);
  CHECK(options_of({{"min_tokens", 0}}).min_tokens == 0);
  CHECK(read({{"seed", 9223372036854775807}}).seed == 9223372036854775807);
  CHECK(read({{"n", 128}}).origin.num_samples == 128);
}

TEST_CASE("values that ask for all tokens or for no seed are as if absent") {
  for (const json& all : {json(0), json(-1), json(100), json(9223372036854775807)}) {
    CHECK(options_of({{"top_k", all}}).top_k == 0);
  }
  CHECK(options_of({{"top_k", 99}}).top_k == 99);
  CHECK(!read({{"seed", -1}}).seed);
  CHECK((options_of({{"stop", json::array()}, {"stop_token_ids", json::array()}, {"logit_bias", json::object()}}) ==
         SamplingOptions{}));
}

TEST_CASE("numbers out of range and of other types are refused with what is allowed") {
  check_errors("temperature", {-0.1, "1", true, json::array()}, "a number of at least 0 is expected");
  check_errors("top_p", {0, -0.5, 1.01, "x", true}, "a number above 0 and at most 1 is expected");
  check_errors("min_p", {-0.01, 1.01, false}, "a number from 0 to 1 is expected");
  check_errors("top_k", {-2, 1.5, "40", 9223372036854775808U},
               "an integer of at least 1, or 0 or -1 for all tokens, is expected");
  check_errors("presence_penalty", {-2.01, 2.01, "0"}, "a number from -2 to 2 is expected");
  check_errors("frequency_penalty", {-2.01, 2.01, "0"}, "a number from -2 to 2 is expected");
  check_errors("repetition_penalty", {0, -1, "1"}, "a number above 0 is expected");
  check_errors("seed", {1.5, "1", 9223372036854775808U}, "an integer from -2^63 to 2^63 - 1 is expected");
  check_errors("n", {0, -1, 129, 2.0, "2"}, "an integer from 1 to 128 is expected");
  check_errors("best_of", {0, 2.0, "2"}, "the value of n is expected");
  check_errors("min_tokens", {-1, 0.5, 2147483648}, "an integer of at least 0 is expected");
  check_errors("include_stop_str_in_output", {0, "yes"}, "only true or false is allowed");
}

TEST_CASE("best_of must be n") {
  CHECK(error_of({{"best_of", 1}}).empty());
  CHECK(error_of({{"n", 2}, {"best_of", 2}}).empty());
  CHECK(error_of({{"best_of", 3}}) == "best_of|best_of 3: only the value of n (1) is supported");
  CHECK(error_of({{"n", 4}, {"best_of", 3}}) == "best_of|best_of 3: only the value of n (4) is supported");
}

TEST_CASE("logit_bias is an object from token ids to numbers from -100 to 100") {
  const auto error_of_bias = [](const json& value) { return error_of({{"logit_bias", value}}); };

  CHECK(error_of_bias({1, 2}) == "logit_bias|logit_bias [1,2]: an object from token ids to numbers is expected");
  for (const std::string key : {"100", "-1", "x", "", "05", "+5", "5.0", " 5", "99999999999999999999"}) {
    CHECK(error_of_bias({{key, 1}}) ==
          "logit_bias|logit_bias: \"" + key + "\" is no token id; ids are integers from 0 to 99");
  }
  for (const json& bias : {json(100.5), json(-101), json("1"), json(nullptr), json(true)}) {
    CHECK(error_of_bias({{"5", bias}}) ==
          "logit_bias|logit_bias[5]: " + bias.dump() + " is not allowed; a number from -100 to 100 is expected");
  }
}

TEST_CASE("stop tokens are token ids of the vocabulary") {
  const auto error_of_ids = [](const json& value) { return error_of({{"stop_token_ids", value}}); };

  CHECK(error_of_ids(5) == "stop_token_ids|stop_token_ids 5: an array of token ids is expected");
  CHECK(error_of_ids({5, 100}) ==
        "stop_token_ids|stop_token_ids[1]: 100 is no token id; ids are integers from 0 to 99");
  CHECK(error_of_ids({"5"}) == "stop_token_ids|stop_token_ids[0]: \"5\" is no token id; ids are integers from 0 to 99");
}

TEST_CASE("stop strings are refused where they are malformed or there is no text") {
  const auto error_of_stop = [](const json& value) { return error_of({{"stop", value}}); };
  const std::string expected = ": a string or an array of at most 16 strings is expected";

  CHECK(error_of_stop(5) == "stop|stop 5" + expected);
  CHECK(error_of_stop({{"a", "b"}}) == "stop|stop {\"a\":\"b\"}" + expected);
  CHECK(error_of_stop({"a", 5}) == "stop|stop [\"a\",5]" + expected);
  CHECK(error_of_stop(json(std::vector<int>(17, 0))).substr(0, 10) == "stop|stop ");
  CHECK_THAT(error_of_stop(json(std::vector<std::string>(17, "a"))), Catch::Matchers::EndsWith(expected));
  CHECK(error_of_stop("") == "stop|stop[0]: \"\" is not allowed; a string that is not empty is expected");
  CHECK(error_of_stop({"a", ""}) == "stop|stop[1]: \"\" is not allowed; a string that is not empty is expected");
  CHECK(error_of_stop("a") == "stop|stop \"a\": the checkpoint has no tokenizer; give stop_token_ids instead");
}
