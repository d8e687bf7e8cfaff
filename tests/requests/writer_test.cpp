#include "requests/completion_writer.hpp"

#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>

using metro::CompletedLine;
using metro::CompletionWriter;
using metro::ExitCode;
using metro::FinishedSequence;
using metro::FinishReason;
using metro::Rejection;
using metro::Request;
using metro::RequestOrigin;
using metro::SampledToken;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using nlohmann::json;

namespace {

Request example_request(std::int32_t num_logprobs) {
  Request request;
  request.prompt = {4, 5};
  request.max_tokens = 3;
  request.num_logprobs = num_logprobs;
  return request;
}

RequestOrigin example_origin() {
  RequestOrigin origin;
  origin.line = 3;
  origin.custom_id = "story-1";
  origin.model = "tiny";
  return origin;
}

std::string completions_of(const ScratchFolder& folder) {
  return metro::read_file(folder.file("completions.jsonl"), ExitCode::input);
}

// What the writer makes of one completion, with its newline.
std::string line_of(const Request& request, const RequestOrigin& origin, const std::vector<SampledToken>& tokens,
                    FinishReason reason = FinishReason::length) {
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);
  writer.write({origin, {{request, tokens, reason}}, {}});
  return completions_of(folder);
}

// XXH3 with 64 bits of "story-1" and "line-7", as the xxHash library gives it.
const std::string story_key = "4ba18c17793fb339";
const std::string line_key = "ad8ca037213613f2";

}  // namespace

TEST_CASE("a completion is one line of the batch output form") {
  const std::string line =
      line_of(example_request(-1), example_origin(), {{7, 0.0F, {}}, {2, 0.0F, {}}}, FinishReason::stop);

  CHECK(line == "{\"id\":\"batch_req_" + story_key + "\",\"custom_id\":\"story-1\",\"response\":{\"status_code\":200," +
                    "\"request_id\":\"req_" + story_key + "\",\"body\":{\"id\":\"cmpl-" + story_key +
                    "\",\"object\":\"text_completion\",\"created\":0,\"model\":\"tiny\",\"choices\":[{\"index\":0," +
                    "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}]," +
                    "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4}}}," +
                    "\"error\":null}\n");
}

TEST_CASE("token ids are reported when asked for") {
  RequestOrigin origin = example_origin();
  origin.return_token_ids = true;

  const json line = json::parse(line_of(example_request(-1), origin, {{7, 0.0F, {}}, {2, 0.0F, {}}}));

  const json& choice = line["response"]["body"]["choices"][0];
  CHECK(choice["prompt_token_ids"] == json({4, 5}));
  CHECK(choice["token_ids"] == json({7, 2}));
  CHECK(choice["finish_reason"] == "length");
}

TEST_CASE("log-probabilities are arrays with one entry per token") {
  const std::vector<SampledToken> tokens{{7, -0.25F, {{7, -0.25F}, {3, -1.5F}}}, {2, -0.5F, {{2, -0.5F}, {9, -2.0F}}}};

  const json line = json::parse(line_of(example_request(2), example_origin(), tokens));

  const json expected = json::parse(R"({
    "tokens": ["token_id:7", "token_id:2"],
    "token_logprobs": [-0.25, -0.5],
    "top_logprobs": [{"token_id:7": -0.25, "token_id:3": -1.5}, {"token_id:2": -0.5, "token_id:9": -2.0}],
    "text_offset": [0, 0]})");
  CHECK(line["response"]["body"]["choices"][0]["logprobs"] == expected);
}

TEST_CASE("the sampled token is among the likeliest even when it is not one of them") {
  const auto top_of = [](std::int32_t num_logprobs, const SampledToken& token) {
    const json line = json::parse(line_of(example_request(num_logprobs), example_origin(), {token}));
    return line["response"]["body"]["choices"][0]["logprobs"]["top_logprobs"][0];
  };

  CHECK(top_of(0, {7, -0.25F, {}}) == json::parse(R"({"token_id:7": -0.25})"));
  CHECK(top_of(1, {7, -0.75F, {{8, -0.25F}}}) == json::parse(R"({"token_id:8": -0.25, "token_id:7": -0.75})"));
}

TEST_CASE("stop_reason tells the stop token or string, and is null for an end token and the length") {
  Request request = example_request(-1);
  request.sampling.stop_token_ids = {2, 7};
  request.sampling.stop = {"a", "b"};
  const auto choice_of = [&](FinishReason reason, std::int32_t stop_string) {
    const json line =
        json::parse(line_of(request, example_origin(), {{4, 0.0F, {}}, {7, 0.0F, {}, stop_string}}, reason));
    return line["response"]["body"]["choices"][0];
  };

  CHECK(choice_of(FinishReason::stop, -1)["stop_reason"] == nullptr);
  CHECK(choice_of(FinishReason::length, -1)["stop_reason"] == nullptr);
  CHECK(choice_of(FinishReason::stop_token, 1)["stop_reason"] == 7);
  CHECK(choice_of(FinishReason::stop_token, -1)["finish_reason"] == "stop");
  CHECK(choice_of(FinishReason::stop_string, 1)["stop_reason"] == "b");
  CHECK(choice_of(FinishReason::stop_string, 0)["finish_reason"] == "stop");
}

TEST_CASE("several completions are choices by index, and usage counts the prompt once") {
  RequestOrigin origin = example_origin();
  origin.num_samples = 2;
  origin.return_token_ids = true;
  Request second = example_request(-1);
  second.sampling.sample_index = 1;
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);

  writer.write({origin,
                {{example_request(-1), {{7, 0.0F, {}}, {8, 0.0F, {}}, {9, 0.0F, {}}}, FinishReason::length},
                 {second, {{2, 0.0F, {}}}, FinishReason::stop}},
                {}});

  const json body = json::parse(completions_of(folder))["response"]["body"];
  REQUIRE(body["choices"].size() == 2);
  CHECK(body["choices"][0]["index"] == 0);
  CHECK(body["choices"][0]["token_ids"] == json({7, 8, 9}));
  CHECK(body["choices"][0]["finish_reason"] == "length");
  CHECK(body["choices"][1]["index"] == 1);
  CHECK(body["choices"][1]["token_ids"] == json({2}));
  CHECK(body["choices"][1]["finish_reason"] == "stop");
  CHECK(body["usage"] == json::parse(R"({"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6})"));
}

TEST_CASE("echo puts the prompt's log-probabilities first, its first token has none") {
  RequestOrigin origin = example_origin();
  origin.echo = true;
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);

  writer.write(
      {origin, {{example_request(1), {{7, -0.25F, {{7, -0.25F}}}}, FinishReason::length}}, {{5, -2.0F, {{6, -0.5F}}}}});

  const json choice = json::parse(completions_of(folder))["response"]["body"]["choices"][0];
  CHECK(choice["logprobs"] == json::parse(R"({
    "tokens": ["token_id:4", "token_id:5", "token_id:7"],
    "token_logprobs": [null, -2.0, -0.25],
    "top_logprobs": [null, {"token_id:6": -0.5, "token_id:5": -2.0}, {"token_id:7": -0.25}],
    "text_offset": [0, 0, 0]})"));
}

TEST_CASE("a completion of which only the prompt is wanted has no tokens") {
  RequestOrigin origin = example_origin();
  origin.echo = true;
  origin.drops_completion = true;
  origin.return_token_ids = true;
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);

  writer.write({origin, {{example_request(0), {{2, -0.25F, {}}}, FinishReason::stop}}, {{5, -2.0F, {}}}});

  const json body = json::parse(completions_of(folder))["response"]["body"];
  const json& choice = body["choices"][0];
  CHECK(choice["logprobs"]["tokens"] == json({"token_id:4", "token_id:5"}));
  CHECK(choice["token_ids"] == json::array());
  CHECK(choice["finish_reason"] == "length");
  CHECK(choice["stop_reason"] == nullptr);
  CHECK(body["usage"] == json::parse(R"({"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2})"));
}

TEST_CASE("a line with a completion too few, or without the scores of its prompt, is a bug") {
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);
  const FinishedSequence sample{example_request(1), {{7, -0.25F, {{7, -0.25F}}}}, FinishReason::length};
  RequestOrigin two = example_origin();
  two.num_samples = 2;
  RequestOrigin echo = example_origin();
  echo.echo = true;

  CHECK_THROWS_AS(writer.write({two, {sample}, {}}), metro::Bug);
  CHECK_THROWS_AS(writer.write({example_origin(), {}, {}}), metro::Bug);
  CHECK_THROWS_AS(writer.write({echo, {sample}, {}}), metro::Bug);
  CHECK(completions_of(folder).empty());
}

TEST_CASE("a log-probability is the shortest decimal of its float") {
  const auto printed = [](float value) {
    const std::string line = line_of(example_request(0), example_origin(), {{7, value, {}}});
    const std::string key = "\"token_logprobs\":[";
    const auto begin = line.find(key) + key.size();
    return line.substr(begin, line.find(']', begin) - begin);
  };

  CHECK(printed(-0.1F) == "-0.1");
  CHECK(printed(-12.345678F) == "-12.345678");
  CHECK(printed(-1e-6F) == "-1e-06");
  CHECK(printed(0.0F) == "0.0");
  CHECK(printed(-20000.0F) == "-9999.0");
  CHECK(printed(-std::numeric_limits<float>::infinity()) == "-9999.0");
  CHECK(printed(std::numeric_limits<float>::quiet_NaN()) == "-9999.0");
  for (float value = -1.0F; value > -30.0F; value = std::nextafter(value * 1.07F, -100.0F)) {
    CHECK(std::stof(printed(value)) == value);
    CHECK(printed(value).size() <= 11);
  }
}

TEST_CASE("the same completions give the same bytes") {
  const ScratchFolder first;
  const ScratchFolder second;

  for (const ScratchFolder* folder : {&first, &second}) {
    CompletionWriter writer(folder->path().string(), nullptr);
    writer.write({example_origin(), {{example_request(1), {{7, -0.3F, {{7, -0.3F}}}}, FinishReason::length}}, {}});
    writer.flush();
  }

  CHECK(completions_of(first) == completions_of(second));
}

TEST_CASE("a completion does not depend on the line it came from") {
  RequestOrigin elsewhere = example_origin();
  elsewhere.line = 99;

  CHECK(line_of(example_request(-1), elsewhere, {{7, 0.0F, {}}}) ==
        line_of(example_request(-1), example_origin(), {{7, 0.0F, {}}}));
}

TEST_CASE("lines are asked to be on the disk from time to time, if there are new ones") {
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);
  const std::vector<SampledToken> tokens{{7, 0.0F, {}}};

  CHECK(!writer.flush_if_due(100.0));
  writer.write({example_origin(), {{example_request(-1), tokens, FinishReason::length}}, {}});
  CHECK(writer.flush_if_due(100.0));
  CHECK(!writer.flush_if_due(200.0));
  writer.write(Rejection{"a", 3, "story-1", "n", "n 2"});
  CHECK(!writer.flush_if_due(104.0));
  CHECK(writer.flush_if_due(105.0));
}

TEST_CASE("a rejection is one line of errors.jsonl") {
  const ScratchFolder folder;
  CompletionWriter writer(folder.path().string(), nullptr);

  writer.write(Rejection{"in/a.jsonl", 3, "story-1", "n", "n 0: an integer from 1 to 128 is expected"});
  writer.write(Rejection{"-", 5, "line-7", "", "bad \xff bytes"});

  const std::string start = "{\"id\":\"batch_req_";
  const std::string type = "\"type\":\"invalid_request_error\"";
  CHECK(metro::read_file(folder.file("errors.jsonl"), ExitCode::input) ==
        start + story_key + "\",\"custom_id\":\"story-1\",\"response\":{\"status_code\":400,\"request_id\":\"req_" +
            story_key + "\",\"body\":{\"error\":{\"message\":\"n 0: an integer from 1 to 128 is expected\"," + type +
            ",\"param\":\"n\",\"code\":null}}},\"error\":null,\"file\":\"in/a.jsonl\",\"line\":3}\n" + start +
            line_key + "\",\"custom_id\":\"line-7\",\"response\":{\"status_code\":400,\"request_id\":\"req_" +
            line_key + "\",\"body\":{\"error\":{\"message\":\"bad \xEF\xBF\xBD bytes\"," + type +
            ",\"param\":null,\"code\":null}}},\"error\":null,\"file\":\"-\",\"line\":5}\n");
}

TEST_CASE("both files are there from the start, in a folder that is made") {
  const ScratchFolder folder;

  const CompletionWriter writer(folder.file("a/b"), nullptr);

  CHECK(std::filesystem::file_size(folder.file("a/b/completions.jsonl")) == 0);
  CHECK(std::filesystem::file_size(folder.file("a/b/errors.jsonl")) == 0);
}

TEST_CASE("output that is there is kept") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("errors.jsonl"), "old\n");

  expect_error(ExitCode::usage, {"errors.jsonl is there already", "another output.directory"},
               [&] { CompletionWriter(folder.path().string(), nullptr); });
  CHECK(metro::read_file(folder.file("errors.jsonl"), ExitCode::input) == "old\n");
  // Nothing was made that would stop the next attempt.
  CHECK(!std::filesystem::exists(folder.file("completions.jsonl")));
}

TEST_CASE("a writer with a journal goes on behind what is there and notes each line with its place") {
  const ScratchFolder folder;
  RequestOrigin origin = example_origin();
  origin.input_line = {3, 33};
  const CompletedLine completed{origin, {{example_request(-1), {{7, 0.0F, {}}}, FinishReason::length}}, {}};
  Rejection rejection{"a", 9, "story-1", "n", "n 2", {9, 99}};
  std::string text;
  {
    metro::LineJournal journal(folder.file("journal"), 0.0);
    CompletionWriter(folder.path().string(), nullptr, journal).write(completed);
    text = completions_of(folder);
    CompletionWriter writer(folder.path().string(), nullptr, journal);
    writer.write(rejection);
    writer.write(completed);
    writer.flush();
  }

  CHECK(completions_of(folder) == text + text);
  const auto length = static_cast<std::int64_t>(text.size());
  const std::string error = metro::read_file(folder.file("errors.jsonl"), ExitCode::input);
  std::vector<metro::JournalEntry> entries;
  metro::LineJournal(folder.file("journal"), 0.0).recover([&](const metro::JournalEntry& entry) {
    entries.push_back(entry);
    return true;
  });
  const std::vector<metro::JournalEntry> expected{
      {{3, 33}, metro::OutputFile::completions, 0, length, metro::digest_of(text)},
      {{9, 99}, metro::OutputFile::errors, 0, static_cast<std::int64_t>(error.size()), metro::digest_of(error)},
      {{3, 33}, metro::OutputFile::completions, length, length, metro::digest_of(text)}};
  CHECK(entries == expected);
}

TEST_CASE("an output directory that cannot be one is named") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("file"), "");
  std::filesystem::create_directories(folder.file("out/completions.jsonl"));
  std::filesystem::create_directory(folder.file("linked"));
  std::filesystem::create_symlink(folder.file("file"), folder.file("linked/errors.jsonl"));

  expect_error(ExitCode::usage, {"cannot create the folder", "/file/out"},
               [&] { CompletionWriter(folder.file("file/out"), nullptr); });
  expect_error(ExitCode::usage, {"/out/completions.jsonl", "something else than a plain file"},
               [&] { CompletionWriter(folder.file("out"), nullptr); });
  expect_error(ExitCode::usage, {"/linked/errors.jsonl", "something else than a plain file"},
               [&] { CompletionWriter(folder.file("linked"), nullptr); });
}

TEST_CASE("an unfinished completion is not written") {
  CHECK_THROWS_AS(line_of(example_request(-1), example_origin(), {{7, 0.0F, {}}}, FinishReason::none), metro::Bug);
}
