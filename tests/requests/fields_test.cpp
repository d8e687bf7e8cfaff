// The table of body fields: what it accepts, what it refuses and with which words, and that it is documented.
#include "requests/request_fields.hpp"

#include "base/file.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <set>

using metro::ExitCode;
using metro::LineError;
using metro::RequestDraft;
using nlohmann::json;

namespace {

RequestDraft read(json body) {
  RequestDraft draft;
  draft.vocab_size = 100;
  if (!body.contains("prompt")) {
    body["prompt"] = {1, 2, 3};
  }
  metro::read_request_fields(body, draft);
  return draft;
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

}  // namespace

TEST_CASE("every field is documented in docs/requests.md, and only once in the table") {
  const std::string page = metro::read_file(METRO_SOURCE_DIR "/docs/requests.md", ExitCode::input);
  std::string first_cells;  // of all tables
  for (std::size_t row = page.find("\n| `"); row != std::string::npos; row = page.find("\n| `", row + 1)) {
    first_cells += page.substr(row, page.find(" | ", row + 3) - row);
  }

  for (const bool is_chat : {false, true}) {
    std::set<std::string_view> names;
    for (const metro::RequestField& field : metro::request_fields(is_chat)) {
      INFO(field.name);
      CHECK(names.insert(field.name).second);
      CHECK(first_cells.find(fmt::format("`{}`", field.name)) != std::string::npos);
    }
  }
}

TEST_CASE("every field accepts null, and its neutral values where it has any") {
  for (const metro::RequestField& field : metro::request_fields(false)) {
    INFO(field.name);
    if (field.name != "prompt") {
      CHECK(error_of({{std::string(field.name), nullptr}}).empty());
    }
    if (field.read == nullptr) {
      for (const json& value : json::parse(field.neutral)) {
        CHECK(error_of({{std::string(field.name), value}}).empty());
      }
    }
  }
}

TEST_CASE("every field refuses a value of the wrong type by name") {
  for (const metro::RequestField& field : metro::request_fields(false)) {
    const std::string name(field.name);
    INFO(name);
    // No field takes an array that holds only an object.
    const json body{{name, json::array({json::object()})}};
    CHECK_THAT(error_of(body), Catch::Matchers::StartsWith(name + "|" + name));
  }
}

TEST_CASE("fields with a function reach the request") {
  const auto draft = read({{"prompt", {0, 99}},
                           {"max_tokens", 5},
                           {"logprobs", 20},
                           {"ignore_eos", true},
                           {"return_token_ids", true},
                           {"echo", true},
                           {"model", "m"}});

  CHECK(draft.request.prompt == std::vector<std::int32_t>{0, 99});
  CHECK(draft.max_tokens == 5);
  CHECK(draft.request.num_logprobs == 20);
  CHECK(draft.request.ignore_eos);
  CHECK(draft.request.scores_prompt);
  CHECK(draft.origin.return_token_ids);
  CHECK(draft.origin.echo);
  CHECK(draft.origin.model == "m");
}

TEST_CASE("absent fields leave the defaults") {
  const auto draft = read({{"user", "u"}});

  CHECK(!draft.max_tokens);
  CHECK(draft.request.num_logprobs == -1);
  CHECK(!draft.request.ignore_eos);
  CHECK(!draft.request.scores_prompt);
  CHECK(!draft.origin.return_token_ids);
  CHECK(!draft.origin.echo);
  CHECK(draft.origin.num_samples == 1);
  CHECK(!draft.temperature);
  CHECK(!draft.seed);
  CHECK((draft.request.sampling == metro::SamplingOptions{}));
}

TEST_CASE("the prompt is scored only when it is echoed with logprobs") {
  CHECK(!read({{"echo", true}}).request.scores_prompt);
  CHECK(!read({{"logprobs", 1}}).request.scores_prompt);
  CHECK(read({{"echo", true}, {"logprobs", 0}}).request.scores_prompt);
}

TEST_CASE("what is not supported is refused with the value and what is") {
  const std::vector<std::pair<json, std::string>> cases{
      {{{"stream", true}}, "stream|stream true: only false is supported"},
      {{{"use_beam_search", true}}, "use_beam_search|use_beam_search true: only false is supported"},
      {{{"bad_words", {"x"}}}, "bad_words|bad_words [\"x\"]: only [] is supported"},
      {{{"allowed_token_ids", {5}}}, "allowed_token_ids|allowed_token_ids [5]: not supported"},
      {{{"prompt_logprobs", 1}}, "prompt_logprobs|prompt_logprobs 1: not supported"},
      {{{"add_special_tokens", 1}}, "add_special_tokens|add_special_tokens 1: only true or false is allowed"},
      {{{"tools", json::array()}}, "tools|tools []: a field of chat, not of completions"},
      {{{"store", true}}, "store|store true: only false is supported"},
      {{{"guided_json", json::object()}}, "guided_json|guided_json {}: not supported"},
      {{{"messages", json::array()}}, "messages|messages []: a field of chat, not of completions"},
      {{{"max_completion_tokens", 5}},
       "max_completion_tokens|max_completion_tokens 5: a field of chat, not of completions"},
      {{{"response_format", {{"type", "json_object"}}}},
       "response_format|response_format {\"type\":\"json_object\"}: only {\"type\":\"text\"} is supported"},
      {{{"service_tier", "flex"}}, "service_tier|service_tier \"flex\": only \"auto\" or \"default\" is supported"}};

  for (const auto& [body, expected] : cases) {
    CHECK(error_of(body) == expected);
  }
}

TEST_CASE("malformed values of supported fields are refused with what is expected") {
  const std::vector<std::pair<json, std::string>> cases{
      {{{"max_tokens", 0}}, "max_tokens|max_tokens 0: an integer of at least 1 is expected (0 only with echo)"},
      {{{"max_tokens", -1}}, "max_tokens|max_tokens -1: an integer of at least 1 is expected"},
      {{{"max_tokens", 2.5}}, "max_tokens|max_tokens 2.5: an integer of at least 1 is expected"},
      {{{"max_tokens", "9"}}, "max_tokens|max_tokens \"9\": an integer of at least 1 is expected"},
      {{{"max_tokens", 9223372036854775808U}},
       "max_tokens|max_tokens 9223372036854775808: an integer of at least 1 is expected"},
      {{{"logprobs", 21}}, "logprobs|logprobs 21: null or an integer from 0 to 20 is expected"},
      {{{"logprobs", -1}}, "logprobs|logprobs -1: null or an integer from 0 to 20 is expected"},
      {{{"logprobs", true}}, "logprobs|logprobs true: null or an integer from 0 to 20 is expected"},
      {{{"ignore_eos", 1}}, "ignore_eos|ignore_eos 1: only true or false is allowed"},
      {{{"return_token_ids", "yes"}}, "return_token_ids|return_token_ids \"yes\": only true or false is allowed"},
      {{{"model", 5}}, "model|model 5: a string is expected"},
      {{{"user", 5}}, "user|user 5: a string is expected"},
      {{{"request_id", 5}}, "request_id|request_id 5: a string is expected"},
      {{{"cache_salt", 5}}, "cache_salt|cache_salt 5: a string is expected"},
      {{{"metadata", 5}}, "metadata|metadata 5: an object is expected"},
      {{{"echo", 1}}, "echo|echo 1: only true or false is allowed"}};

  for (const auto& [body, expected] : cases) {
    CHECK(error_of(body) == expected);
  }
}

TEST_CASE("a prompt must be one list of token ids of the vocabulary") {
  const auto error_of_prompt = [](const json& prompt) { return error_of({{"prompt", prompt}}); };

  CHECK(error_of_prompt(nullptr) == "prompt|prompt: missing; a string or an array of token ids is expected");
  CHECK(error_of_prompt(json::array()) == "prompt|prompt: it has no tokens; at least one is needed");
  CHECK(error_of_prompt({{"a", 1}}) == "prompt|prompt {\"a\":1}: a string or an array of token ids is expected");
  CHECK(error_of_prompt({"a", "b"}) == "prompt|prompt: an array of strings is not supported; give one prompt per line");
  CHECK(error_of_prompt(json::array({json::array({1}), json::array({2})})) ==
        "prompt|prompt: an array of arrays is not supported; give one prompt per line");
  CHECK(error_of_prompt({5, 100}) == "prompt|prompt[1]: 100 is no token id; ids are integers from 0 to 99");
  CHECK(error_of_prompt({-1}) == "prompt|prompt[0]: -1 is no token id; ids are integers from 0 to 99");
  CHECK(error_of_prompt({1.0}) == "prompt|prompt[0]: 1.0 is no token id; ids are integers from 0 to 99");
  CHECK(error_of_prompt({4294967297}) == "prompt|prompt[0]: 4294967297 is no token id; ids are integers from 0 to 99");
  CHECK(error_of_prompt({1, true}) == "prompt|prompt[1]: true is no token id; ids are integers from 0 to 99");
  CHECK(error_of_prompt("text") == "prompt|prompt: the checkpoint has no tokenizer; give token ids instead of text");
}

TEST_CASE("logprobs cannot ask for more tokens than the vocabulary has") {
  RequestDraft draft;
  draft.vocab_size = 8;

  CHECK_NOTHROW(metro::read_request_fields({{"prompt", {1}}, {"logprobs", 8}}, draft));
  CHECK_THROWS_WITH(metro::read_request_fields({{"prompt", {1}}, {"logprobs", 9}}, draft),
                    "logprobs 9: null or an integer from 0 to 8 is expected");
}

TEST_CASE("an unknown field is refused, with the nearest known name if one is near") {
  CHECK(error_of({{"max_token", 5}}) == "max_token|unknown field \"max_token\"; did you mean \"max_tokens\"?");
  CHECK(error_of({{"Temperature", 0}}) == "Temperature|unknown field \"Temperature\"; did you mean \"temperature\"?");
  CHECK(error_of({{"max_new_tokens", 5}}) ==
        "max_new_tokens|unknown field \"max_new_tokens\"; did you mean \"max_tokens\"?");
  CHECK(error_of({{"wavelength", 5}}) == "wavelength|unknown field \"wavelength\"");
  CHECK(error_of({{"unheard", nullptr}}) == "unheard|unknown field \"unheard\"");
  CHECK(error_of({{std::string(5000, 'n'), 5}}) ==
        std::string(40, 'n') + "...|unknown field \"" + std::string(40, 'n') + "...\"");
}

TEST_CASE("quoted values are cut at a character boundary") {
  CHECK(metro::excerpt("abc", 3) == "abc");
  CHECK(metro::excerpt("abcd", 3) == "abc...");
  CHECK(metro::excerpt("ab\xC3\xA9", 3) == "ab...");
  CHECK(metro::excerpt(json(std::string(500, 'x'))) == "\"" + std::string(59, 'x') + "...");
}
