// Reader and writer with the tokenizer of the embedded model.
#include "base/file.hpp"
#include "base/json.hpp"
#include "requests/completion_writer.hpp"
#include "requests/request_reader.hpp"
#include "requests/tiny_tokenizer.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using metro::AcceptedLine;
using metro::CompletedLine;
using metro::CompletionWriter;
using metro::ExitCode;
using metro::FinishedSequence;
using metro::FinishReason;
using metro::Rejection;
using metro::Request;
using metro::RequestDefaults;
using metro::RequestOrigin;
using metro::RequestReader;
using metro::SampledToken;
using metro::test::ScratchFolder;
using metro::test::tiny_tokenizer;
using nlohmann::json;

namespace {

RequestDefaults tiny_defaults() {
  RequestDefaults defaults;
  defaults.max_tokens = 64;
  defaults.max_context = 512;
  defaults.vocab_size = 2048;
  defaults.model = "tiny";
  return defaults;
}

metro::ReadItem read_one(const std::string& line, const RequestDefaults& defaults) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"), line);
  const auto tokenizer = tiny_tokenizer();
  return RequestReader(folder.file("in.jsonl"), defaults, tokenizer.get()).next();
}

std::string message_of(const std::string& line, const RequestDefaults& defaults) {
  return std::get<Rejection>(read_one(line, defaults)).message;
}

std::vector<SampledToken> sampled(const std::vector<std::int32_t>& ids) {
  std::vector<SampledToken> tokens;
  for (const std::int32_t id : ids) {
    tokens.push_back({id, -1.0F, {}});
  }
  return tokens;
}

// The choice that the writer makes of a line with one completion.
json choice_of(const CompletedLine& line) {
  const ScratchFolder folder;
  const auto tokenizer = tiny_tokenizer();
  CompletionWriter writer(folder.path().string(), tokenizer.get());
  writer.write(line);
  const std::string text = metro::read_file(folder.file("completions.jsonl"), ExitCode::input);
  return metro::parse_json(text, "line", ExitCode::input)["response"]["body"]["choices"][0];
}

// The choice that the writer makes of these tokens.
json choice_of(const std::vector<SampledToken>& tokens, std::int32_t num_logprobs) {
  Request request;
  request.prompt = {1};
  request.num_logprobs = num_logprobs;
  return choice_of({RequestOrigin{}, {{request, tokens, FinishReason::length}}, {}});
}

// A completion with this text that ended with the first of these stop strings.
FinishedSequence stopped_by_string(const std::string& text, std::vector<std::string> stop, std::int32_t stop_string) {
  FinishedSequence sample;
  sample.request.prompt = {1};
  sample.request.num_logprobs = 0;
  sample.request.sampling.stop = std::move(stop);
  sample.tokens = sampled(tiny_tokenizer()->encode(text));
  sample.tokens.back().stop_string = stop_string;
  sample.reason = FinishReason::stop_string;
  return sample;
}

json reference_cases() {
  const std::string path = METRO_TEST_DATA "/tiny/reference.json";
  return metro::parse_json(metro::read_file(path, ExitCode::input), path, ExitCode::input)["cases"];
}

}  // namespace

TEST_CASE("text prompts become the ids of the reference") {
  for (const json& one : reference_cases()) {
    const auto result = read_one(json{{"prompt", one["prompt"]}}.dump(), tiny_defaults());

    CHECK(std::get<AcceptedLine>(result).samples[0].prompt == one["prompt_ids"].get<std::vector<std::int32_t>>());
  }
}

TEST_CASE("generated ids become the text of the reference, without the end token") {
  for (const json& one : reference_cases()) {
    const auto tokens = sampled(one["tokens"].get<std::vector<std::int32_t>>());

    CHECK(choice_of(tokens, -1)["text"] == one["text"]);
  }
}

TEST_CASE("every line of the example prompts is accepted") {
  const auto tokenizer = tiny_tokenizer();
  RequestReader reader(METRO_SOURCE_DIR "/inputs/prompts/stories.jsonl", tiny_defaults(), tokenizer.get());

  std::int64_t num_accepted = 0;
  for (auto item = reader.next(); !std::holds_alternative<std::monostate>(item); item = reader.next()) {
    INFO("line " << reader.num_lines());
    CHECK(std::holds_alternative<AcceptedLine>(item));
    ++num_accepted;
  }
  CHECK(num_accepted == 24);
}

TEST_CASE("text that gives no usable prompt is rejected") {
  RequestDefaults few_ids = tiny_defaults();
  few_ids.vocab_size = 500;

  CHECK(message_of(R"({"prompt": ""})", tiny_defaults()) == "prompt: it has no tokens; at least one is needed");
  CHECK(message_of(R"({"prompt": "Once upon"})", few_ids) ==
        "prompt: the text has token 795, the model knows only ids from 0 to 499");
  CHECK(message_of("{\"prompt\": \"" + std::string(20'000, '7') + "\"}", tiny_defaults()) ==
        "prompt: 20000 tokens, at most 511 are allowed (model.max_context 512, of which the completion needs one)");
}

TEST_CASE("an escaped NUL in a prompt is a character like others") {
  const auto result = read_one(R"({"prompt": "a\u0000b"})", tiny_defaults());

  CHECK(std::get<AcceptedLine>(result).samples[0].prompt.size() == 3);
}

TEST_CASE("log-probabilities name tokens by their text and count characters") {
  // "é" in two tokens (bytes C3, A9), then ".", the end token, and " She" of the reference.
  const json choice =
      choice_of({{127, -1.0F, {}}, {102, -1.0F, {}}, {13, -1.0F, {}}, {2045, -1.0F, {}}, {443, -1.0F, {}}}, 0);

  CHECK(choice["text"] == "\u00e9. She");
  CHECK(choice["logprobs"]["tokens"] == json({"\ufffd", "\ufffd", ".", "<|endoftext|>", " She"}));
  CHECK(choice["logprobs"]["text_offset"] == json({0, 0, 1, 2, 2}));
}

TEST_CASE("of tokens with the same text the likeliest is reported") {
  const json choice = choice_of({{13, -0.5F, {{13, -0.5F}, {127, -1.5F}, {102, -2.5F}}}}, 3);

  CHECK(choice["logprobs"]["top_logprobs"][0] == json::parse("{\".\": -0.5, \"\ufffd\": -1.5}"));
}

TEST_CASE("text ends before the stop string, or behind it where that is wanted") {
  // The last token is " happy" or a part of it: the stop string ends inside the token and begins two tokens earlier.
  const FinishedSequence sample = stopped_by_string("The dog was happy", {"never", "was hap"}, 1);
  RequestOrigin with_stop;
  with_stop.include_stop = true;
  const auto num_tokens = sample.tokens.size();

  const json before = choice_of({RequestOrigin{}, {sample}, {}});
  const json behind = choice_of({with_stop, {sample}, {}});

  CHECK(before["text"] == "The dog ");
  CHECK(behind["text"] == "The dog was hap");
  CHECK(before["stop_reason"] == "was hap");
  CHECK(before["finish_reason"] == "stop");
  REQUIRE(before["logprobs"]["text_offset"].size() == num_tokens);
  CHECK(before["logprobs"]["text_offset"].back() == 8);  // where the text ends: the token begins behind that
}

TEST_CASE("a verdict that the text does not bear out is a bug") {
  CHECK_THROWS_AS(choice_of({RequestOrigin{}, {stopped_by_string("The dog", {"cat", "dog"}, 0)}, {}}), metro::Bug);
  CHECK_THROWS_AS(choice_of({RequestOrigin{}, {stopped_by_string("The dog was", {"dog"}, 0)}, {}}), metro::Bug);
}

TEST_CASE("text ends before the stop token, or behind it where that is wanted, an end token has no text") {
  const std::int32_t end_token = 2045;
  FinishedSequence sample;
  sample.request.prompt = {1};
  sample.tokens = sampled(tiny_tokenizer()->encode("The dog."));
  sample.reason = FinishReason::stop_token;
  FinishedSequence ended = sample;
  ended.tokens.push_back({end_token, 0.0F, {}});
  ended.reason = FinishReason::stop;
  RequestOrigin with_stop;
  with_stop.include_stop = true;

  CHECK(choice_of({RequestOrigin{}, {sample}, {}})["text"] == "The dog");
  CHECK(choice_of({with_stop, {sample}, {}})["text"] == "The dog.");
  CHECK(choice_of({RequestOrigin{}, {ended}, {}})["text"] == "The dog.");
  CHECK(choice_of({with_stop, {ended}, {}})["text"] == "The dog.");
}

TEST_CASE("echo puts the prompt's text first and counts its characters") {
  RequestOrigin origin;
  origin.echo = true;
  FinishedSequence sample;
  sample.request.prompt = tiny_tokenizer()->encode("Caf\u00e9");
  sample.request.num_logprobs = 0;
  sample.tokens = sampled(tiny_tokenizer()->encode(" She"));
  sample.reason = FinishReason::length;
  REQUIRE(sample.tokens.size() == 1);
  const auto scores = sampled({sample.request.prompt.begin() + 1, sample.request.prompt.end()});

  const json choice = choice_of({origin, {sample}, scores});

  CHECK(choice["text"] == "Caf\u00e9 She");
  const json& offsets = choice["logprobs"]["text_offset"];
  CHECK(offsets.size() == sample.request.prompt.size() + 1);
  CHECK(offsets.front() == 0);
  CHECK(offsets.back() == 4);
  CHECK(choice["logprobs"]["tokens"].back() == " She");
  CHECK(choice["logprobs"]["token_logprobs"].front() == nullptr);
}

TEST_CASE("stop strings of a line are read as text") {
  const auto one = read_one(R"({"prompt": "a", "stop": "\n\u00e9"})", tiny_defaults());
  const auto several = read_one(R"({"prompt": "a", "stop": ["x", "yz"]})", tiny_defaults());

  CHECK(std::get<AcceptedLine>(one).samples[0].sampling.stop == std::vector<std::string>{"\n\u00e9"});
  CHECK(std::get<AcceptedLine>(several).samples[0].sampling.stop == std::vector<std::string>{"x", "yz"});
}
