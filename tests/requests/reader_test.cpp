#include "requests/request_reader.hpp"

#include "requests/reader_harness.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

using metro::ExitCode;
using metro::Rejection;
using metro::Request;
using metro::RequestReader;
using metro::test::expect_error;
using metro::test::message_of;
using metro::test::prompt_of_length;
using metro::test::read_all;
using metro::test::read_text;
using metro::test::rejection_of;
using metro::test::ScratchFolder;
using metro::test::small_defaults;
using Ids = std::vector<std::int32_t>;

TEST_CASE("both forms of a line give a request with what belongs to it") {
  const auto result = read_text(
      R"({"prompt": [7, 8]})"
      "\n"
      R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [9], "max_tokens": 3, )"
      R"("model": "m", "return_token_ids": true, "ignore_eos": true, "logprobs": 2}})"
      "\n"
      R"({"custom_id": "b", "prompt": [1]})");

  REQUIRE(result.rejected.empty());
  REQUIRE(result.accepted.size() == 3);
  const auto& [short_samples, short_origin] = result.accepted[0];
  REQUIRE(short_samples.size() == 1);
  const Request& short_request = short_samples[0];
  CHECK(short_request.id == 0);
  CHECK(short_request.prompt == Ids{7, 8});
  CHECK(short_request.max_tokens == 16);
  CHECK(!short_request.ignore_eos);
  CHECK(short_request.num_logprobs == -1);
  CHECK(short_origin.line == 1);
  CHECK(short_origin.custom_id == "line-1");
  CHECK(short_origin.model == "checkpoint-name");
  CHECK(!short_origin.return_token_ids);
  const auto& [batch_samples, batch_origin] = result.accepted[1];
  REQUIRE(batch_samples.size() == 1);
  const Request& batch_request = batch_samples[0];
  CHECK(batch_request.id == 1);
  CHECK(batch_request.prompt == Ids{9});
  CHECK(batch_request.max_tokens == 3);
  CHECK(batch_request.ignore_eos);
  CHECK(batch_request.num_logprobs == 2);
  CHECK(batch_origin.line == 2);
  CHECK(batch_origin.custom_id == "a");
  CHECK(batch_origin.model == "m");
  CHECK(batch_origin.return_token_ids);
  CHECK(result.accepted[2].origin.custom_id == "b");
}

TEST_CASE("blank lines are skipped and counted, carriage returns tolerated, the last newline not needed") {
  const auto result = read_text("\n  \t\r\n{\"prompt\": [1]}\r\n\n\n{\"prompt\": [2]}");

  REQUIRE(result.accepted.size() == 2);
  CHECK(result.rejected.empty());
  CHECK(result.accepted[0].origin.line == 3);
  CHECK(result.accepted[1].origin.line == 6);
  CHECK(result.num_lines == 6);
}

TEST_CASE("a bad line costs only itself and ids count accepted requests") {
  const auto result = read_text("{\"prompt\": [1]}\nnonsense\n{\"custom_id\": \"x\", \"n\": 0}\n{\"prompt\": [2]}\n");

  REQUIRE(result.accepted.size() == 2);
  REQUIRE(result.rejected.size() == 2);
  CHECK(result.accepted[1].samples[0].id == 1);
  CHECK(result.rejected[0].file.ends_with("/in.jsonl"));
  CHECK(result.rejected[0].line == 2);
  CHECK(result.rejected[0].custom_id == "line-2");
  CHECK(result.rejected[0].field.empty());
  CHECK(result.rejected[1].line == 3);
  CHECK(result.rejected[1].custom_id == "x");
  CHECK(result.rejected[1].field == "n");
  CHECK(result.rejected[1].message == "n 0: an integer from 1 to 128 is expected");
}

TEST_CASE("text that is no JSON object is rejected with the position and the reason") {
  CHECK(message_of("{\"prompt\": [1") ==
        "invalid JSON: parse error at column 14: syntax error while parsing array - unexpected end of input; expected "
        "']'");
  CHECK(message_of("{\"prompt\": tru}") ==
        "invalid JSON: parse error at column 15: syntax error while parsing value - invalid literal");
  CHECK_THAT(message_of("{\"prompt\": [1]} {}"), Catch::Matchers::Contains("expected end of input"));
  CHECK_THAT(message_of("{\"prompt\": \"\xff\"}"), Catch::Matchers::Contains("ill-formed UTF-8"));
  CHECK_THAT(message_of("{\"prompt\": \"\\ud800\"}"), Catch::Matchers::Contains("surrogate"));
  CHECK(message_of("{\"prompt\": [1], \"prompt\": [2]}") == "invalid JSON: key \"prompt\" appears twice");
  CHECK(message_of("{\"prompt\": [1], \"max_tokens\": 1e400}") == "invalid JSON: number overflow parsing '1e400'");
  CHECK(message_of("{\"prompt\": " + std::string(100'000, '[')) == "invalid JSON: nested deeper than 64 levels");
  CHECK(message_of("[1, 2]") == "a line must be a JSON object, this is: [1,2]");
  CHECK(message_of("17") == "a line must be a JSON object, this is: 17");
}

TEST_CASE("a NUL byte is rejected wherever it is") {
  using namespace std::string_literals;

  CHECK(message_of("{\"prompt\": [1]}\0{}"s) == "the line has a NUL byte at column 16");
  CHECK(message_of("\0"s) == "the line has a NUL byte at column 1");
}

TEST_CASE("numbers too large for an integer are named") {
  CHECK(message_of("{\"prompt\": [1], \"max_tokens\": 99999999999999999999}") ==
        "max_tokens 1e+20: an integer of at least 1 is expected");
  CHECK(message_of("{\"prompt\": [99999999999999999999]}") ==
        "prompt[0]: 1e+20 is no token id; ids are integers from 0 to 99");
}

TEST_CASE("the message of a rejection stays short") {
  CHECK(message_of("{\"prompt\": [1], \"max_tokens\": " + std::string(100'000, '1') + "}").size() <= 303);
  CHECK(message_of("{\"prompt\": [1], \"user\": [\"" + std::string(100'000, '1') + "\"]}").size() <= 303);
  const std::string key(100'000, 'k');
  CHECK(message_of("{\"" + key + "\": 1, \"" + key + "\": 2}").size() <= 303);
}

TEST_CASE("a batch line must be a POST to /v1/completions with a body") {
  const auto error_of = [](const std::string& line) {
    const Rejection rejection = rejection_of(line);
    CHECK(rejection.custom_id == "c");
    return rejection.field + "|" + rejection.message;
  };

  CHECK(error_of(R"({"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}})") ==
        "url|url \"/v1/embeddings\": only \"/v1/completions\" or \"/v1/chat/completions\" is supported");
  CHECK(error_of(R"({"custom_id":"c","method":"GET","url":"/v1/completions","body":{}})") ==
        "method|method \"GET\": only \"POST\" is supported");
  CHECK(error_of(R"({"custom_id":"c","method":"POST","body":{"prompt":[1]}})") ==
        "url|url: missing; a batch line has custom_id, method, url and body");
  CHECK(error_of(R"({"custom_id":"c","url":"/v1/completions","body":{"prompt":[1]}})") ==
        "method|method: missing; a batch line has custom_id, method, url and body");
  CHECK(error_of(R"({"custom_id":"c","method":"POST","url":"/v1/completions"})") ==
        "body|body: missing; a batch line has custom_id, method, url and body");
  CHECK(error_of(R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":[1]})") ==
        "body|body [1]: an object is expected");
  CHECK(error_of(R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{"prompt":[1]},"prompt":[1]})") ==
        "prompt|unknown field \"prompt\" beside body; a batch line has custom_id, method, url and body");
  CHECK(error_of(R"({"custom_id":"c","method":"POST","url":"/v1/completions","body":{}})") ==
        "prompt|prompt: missing; a string or an array of token ids is expected");
}

TEST_CASE("null beside the body counts as absent") {
  const auto result = read_text(R"({"custom_id": null, "method": null, "url": null, "body": null, "prompt": [7]})");

  REQUIRE(result.rejected.empty());
  CHECK(result.accepted[0].samples[0].prompt == Ids{7});
  CHECK(result.accepted[0].origin.custom_id == "line-1");
}

TEST_CASE("a custom_id must be a string") {
  const Rejection rejection = rejection_of(R"({"custom_id": 5, "prompt": [1]})");

  CHECK(rejection.field == "custom_id");
  CHECK(rejection.custom_id == "line-1");
  CHECK(rejection.message == "custom_id 5: a string is expected");
}

TEST_CASE("prompt and max_tokens must fit the context") {
  const auto result = read_text("{\"prompt\": " + prompt_of_length(31) + "}\n{\"prompt\": " + prompt_of_length(30) +
                                ", \"max_tokens\": 2}\n{\"prompt\": " + prompt_of_length(20) + "}\n");
  const Rejection long_prompt = rejection_of("{\"prompt\": " + prompt_of_length(32) + "}");
  const Rejection many_tokens = rejection_of("{\"prompt\": " + prompt_of_length(30) + ", \"max_tokens\": 3}");

  REQUIRE(result.accepted.size() == 3);
  CHECK(result.accepted[0].samples[0].max_tokens == 1);
  CHECK(result.accepted[1].samples[0].max_tokens == 2);
  CHECK(result.accepted[2].samples[0].max_tokens == 12);
  CHECK(long_prompt.field == "prompt");
  CHECK(long_prompt.message ==
        "prompt: 32 tokens, at most 31 are allowed (model.max_context 32, of which the completion needs one)");
  CHECK(many_tokens.field == "max_tokens");
  CHECK(many_tokens.message == "max_tokens 3: at most 2 is allowed after a prompt of 30 tokens (model.max_context 32)");
}

TEST_CASE("a line above 64 MiB is rejected and the next one read") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"), "{\"prompt\": [1]}\n");
  // A hole of zeros in the file: it takes no disk.
  std::filesystem::resize_file(folder.file("in.jsonl"), (std::uintmax_t{64} << 20) + 100);

  RequestReader reader(folder.file("in.jsonl"), small_defaults(), nullptr);
  const auto result = read_all(reader);

  CHECK(result.accepted.size() == 1);
  REQUIRE(result.rejected.size() == 1);
  CHECK(result.rejected[0].message == "the line is longer than 67108864 bytes");
  CHECK(result.rejected[0].custom_id == "line-2");
}

TEST_CASE("an input file that is missing ends the run with its name") {
  const ScratchFolder folder;

  expect_error(ExitCode::input, {"cannot open", "none.jsonl", "No such file"},
               [&] { RequestReader(folder.file("none.jsonl"), small_defaults(), nullptr); });
}
