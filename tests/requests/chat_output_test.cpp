// The answer to a line of chat: a message, and log-probabilities in the form of chat.
#include "base/file.hpp"
#include "base/json.hpp"
#include "requests/completion_writer.hpp"
#include "requests/tiny_tokenizer.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using metro::CompletedLine;
using metro::CompletionWriter;
using metro::ExitCode;
using metro::FinishedSequence;
using metro::FinishReason;
using metro::RequestOrigin;
using metro::SampledToken;
using metro::test::ScratchFolder;
using metro::test::tiny_tokenizer;
using nlohmann::json;

namespace {

std::string written(const CompletedLine& line) {
  const ScratchFolder folder;
  const auto tokenizer = tiny_tokenizer();
  CompletionWriter writer(folder.path().string(), tokenizer.get());
  writer.write(line);
  return metro::read_file(folder.file("completions.jsonl"), ExitCode::input);
}

RequestOrigin chat_origin() {
  RequestOrigin origin;
  origin.custom_id = "story-1";
  origin.model = "tiny";
  origin.is_chat = true;
  return origin;
}

FinishedSequence sample_of(std::vector<SampledToken> tokens, FinishReason reason, std::int32_t num_logprobs = -1) {
  FinishedSequence sample;
  sample.request.prompt = {1, 2};
  sample.request.num_logprobs = num_logprobs;
  sample.tokens = std::move(tokens);
  sample.reason = reason;
  return sample;
}

}  // namespace

TEST_CASE("the answer to a line of chat is a message") {
  const std::string line =
      written({chat_origin(), {sample_of({{443, -1.0F, {}}, {2045, -1.0F, {}}}, FinishReason::stop)}, {}});

  CHECK(line ==
        R"({"id":"batch_req_4ba18c17793fb339","custom_id":"story-1","response":{"status_code":200,)"
        R"("request_id":"req_4ba18c17793fb339","body":{"id":"chatcmpl-4ba18c17793fb339","object":"chat.completion",)"
        R"("created":0,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":" She"},)"
        R"("logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
        R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}},"error":null})"
        "\n");
}

TEST_CASE("log-probabilities of chat have an entry per token with its bytes and the likeliest") {
  // The first half of "é" (bytes C3 A9), then the end token.
  const auto sample = sample_of({{127, -0.5F, {{443, -0.25F}, {127, -0.5F}}}, {2045, -0.125F, {{2045, -0.125F}}}},
                                FinishReason::stop, 2);

  const json choice =
      metro::parse_json(written({chat_origin(), {sample}, {}}), "", ExitCode::input)["response"]["body"]["choices"][0];

  const json& content = choice["logprobs"]["content"];
  CHECK(choice["logprobs"].size() == 1);
  REQUIRE(content.size() == 2);
  CHECK(content[0]["token"] == "\ufffd");
  CHECK(content[0]["bytes"] == json({0xC3}));
  CHECK(content[0]["logprob"] == -0.5);
  CHECK(content[0]["top_logprobs"] == json::parse(R"([{"token": " She", "logprob": -0.25, "bytes": [32, 83, 104, 101]},
                        {"token": "\ufffd", "logprob": -0.5, "bytes": [195]}])"));
  CHECK(content[1]["token"] == "<|endoftext|>");
  CHECK(content[1]["top_logprobs"].size() == 1);
}

TEST_CASE("with top_logprobs absent the lists of likeliest tokens are empty") {
  const auto sample = sample_of({{443, -1.0F, {}}}, FinishReason::length, 0);

  const json choice =
      metro::parse_json(written({chat_origin(), {sample}, {}}), "", ExitCode::input)["response"]["body"]["choices"][0];

  CHECK(choice["finish_reason"] == "length");
  CHECK(choice["logprobs"]["content"][0]["top_logprobs"] == json::array());
}
