// Reader and writer with the tokenizer of the embedded model.
#include "base/file.hpp"
#include "base/json.hpp"
#include "requests/completion_writer.hpp"
#include "requests/request_reader.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>

using metro::AcceptedRequest;
using metro::CompletionWriter;
using metro::ExitCode;
using metro::FinishReason;
using metro::Rejection;
using metro::Request;
using metro::RequestDefaults;
using metro::RequestOrigin;
using metro::RequestReader;
using metro::SampledToken;
using metro::Tokenizer;
using metro::test::ScratchFolder;
using nlohmann::json;

namespace {

std::unique_ptr<Tokenizer> tiny_tokenizer() {
  return Tokenizer::load([](const std::string& name) -> std::optional<std::string> {
    const std::string path = METRO_SOURCE_DIR "/inputs/models/tiny/" + name;
    if (!std::filesystem::exists(path)) {
      return std::nullopt;
    }
    return metro::read_file(path, ExitCode::checkpoint);
  });
}

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

// The choice that the writer makes of these tokens.
json choice_of(const std::vector<SampledToken>& tokens, std::int32_t num_logprobs) {
  const ScratchFolder folder;
  const auto tokenizer = tiny_tokenizer();
  CompletionWriter writer(folder.path().string(), false, tokenizer.get());
  Request request;
  request.prompt = {1};
  request.num_logprobs = num_logprobs;
  writer.write(request, RequestOrigin{}, tokens, FinishReason::length);
  const std::string line = metro::read_file(folder.file("completions.jsonl"), ExitCode::input);
  return metro::parse_json(line, "line", ExitCode::input)["response"]["body"]["choices"][0];
}

json reference_cases() {
  const std::string path = METRO_TEST_DATA "/tiny/reference.json";
  return metro::parse_json(metro::read_file(path, ExitCode::input), path, ExitCode::input)["cases"];
}

}  // namespace

TEST_CASE("text prompts become the ids of the reference") {
  for (const json& one : reference_cases()) {
    const auto result = read_one(json{{"prompt", one["prompt"]}}.dump(), tiny_defaults());

    CHECK(std::get<AcceptedRequest>(result).request.prompt == one["prompt_ids"].get<std::vector<std::int32_t>>());
  }
}

TEST_CASE("generated ids become the text of the reference, without the end token") {
  for (const json& one : reference_cases()) {
    std::vector<SampledToken> tokens;
    for (const std::int32_t id : one["tokens"].get<std::vector<std::int32_t>>()) {
      tokens.push_back({id, 0.0F, {}});
    }

    CHECK(choice_of(tokens, -1)["text"] == one["text"]);
  }
}

TEST_CASE("every line of the example prompts is accepted") {
  const auto tokenizer = tiny_tokenizer();
  RequestReader reader(METRO_SOURCE_DIR "/inputs/prompts/stories.jsonl", tiny_defaults(), tokenizer.get());

  std::int64_t num_accepted = 0;
  for (auto item = reader.next(); !std::holds_alternative<std::monostate>(item); item = reader.next()) {
    INFO("line " << reader.num_lines());
    CHECK(std::holds_alternative<AcceptedRequest>(item));
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

  CHECK(std::get<AcceptedRequest>(result).request.prompt.size() == 3);
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
