// Lines of chat through the reader: what is given to the renderer, and what becomes of its text.
#include "base/error.hpp"
#include "base/file.hpp"
#include "requests/field_values.hpp"
#include "requests/request_reader.hpp"
#include "requests/tiny_tokenizer.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <utility>

using metro::AcceptedLine;
using metro::Error;
using metro::ExitCode;
using metro::LineError;
using metro::Rejection;
using metro::RequestOrigin;
using metro::RequestReader;
using metro::test::ScratchFolder;
using metro::test::tiny_tokenizer;
using nlohmann::json;

namespace {

class Renderer : public metro::ChatRenderer {
 public:
  explicit Renderer(std::function<std::string()> answer) : answer_(std::move(answer)) {}
  std::string render(const std::string& line, const RequestOrigin& origin) override {
    lines.push_back(line);
    where.push_back(origin.line);
    return answer_();
  }

  std::vector<std::string> lines;
  std::vector<std::int64_t> where;

 private:
  std::function<std::string()> answer_;
};

const std::string text = "Once upon<|endoftext|> a time";

struct Read {
  std::vector<metro::ReadItem> items;
  std::vector<std::string> lines;  // that were rendered
  std::vector<std::int64_t> where;
};

Read read(
    const std::string& content, std::function<std::string()> answer = [] { return text; }, bool has_tokenizer = true) {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("in.jsonl"), content);
  const auto tokenizer = tiny_tokenizer();
  Renderer renderer(std::move(answer));
  metro::RequestDefaults defaults;
  defaults.max_tokens = 64;
  defaults.max_context = 32;
  defaults.vocab_size = 2048;
  RequestReader reader({.files = {folder.file("in.jsonl")}, .arrivals = ""}, defaults,
                       has_tokenizer ? tokenizer.get() : nullptr, &renderer);
  Read result;
  for (auto item = reader.next(); !std::holds_alternative<std::monostate>(item); item = reader.next()) {
    result.items.push_back(std::move(item));
  }
  result.lines = renderer.lines;
  result.where = renderer.where;
  return result;
}

std::string error_of(
    const std::string& line, std::function<std::string()> answer = [] { return text; }) {
  const Read result = read(line, std::move(answer));
  const auto& rejection = std::get<Rejection>(result.items.at(0));
  return rejection.field + "|" + rejection.message;
}

}  // namespace

TEST_CASE("chat is what its url or, in the short form, its messages say, and other lines are not rendered") {
  const std::string batch = R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":)";
  const std::string messages = R"({"messages":[{"role":"user","content":"x"}]})";

  const Read result = read(messages + "\n\n" + batch + messages + "}\n" +
                           R"({"prompt":"x","messages":null})"
                           "\n"
                           R"({"method":"POST","url":"/v1/completions","body":{"prompt":"x"}})"
                           "\n");

  CHECK(result.lines == std::vector<std::string>{messages, batch + messages + "}"});  // byte for byte
  CHECK(result.where == std::vector<std::int64_t>{1, 3});
  REQUIRE(result.items.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(std::get<AcceptedLine>(result.items[i]).origin.is_chat == (i < 2));
  }
}

TEST_CASE("the rendered text is encoded with the special tokens in it and without others") {
  const Read result = read(R"({"messages":[{"role":"user","content":"x"}]})");

  const auto& prompt = std::get<AcceptedLine>(result.items.at(0)).samples.at(0).prompt;
  CHECK(prompt == tiny_tokenizer()->encode(text));
  CHECK(std::count(prompt.begin(), prompt.end(), 2045) == 1);  // <|endoftext|>
  CHECK(prompt.size() == 5);
}

TEST_CASE("fields of chat reach the request") {
  const Read plain = read(R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,"model":"m"})");
  const Read full =
      read(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":3,"logprobs":true,"top_logprobs":2,)"
           R"("n":2,"temperature":1,"stop":"y"})");

  const auto& accepted = std::get<AcceptedLine>(full.items.at(0));
  CHECK(accepted.samples.size() == 2);
  CHECK(accepted.samples[0].max_tokens == 3);
  CHECK(accepted.samples[0].num_logprobs == 2);
  CHECK(!accepted.samples[0].scores_prompt);
  CHECK(accepted.samples[0].sampling.stop == std::vector<std::string>{"y"});
  CHECK(accepted.samples[0].sampling.seed != 0);
  CHECK(full.lines.size() == 1);  // rendered once for both
  CHECK(std::get<AcceptedLine>(plain.items.at(0)).samples[0].num_logprobs == 0);
  CHECK(std::get<AcceptedLine>(plain.items.at(0)).origin.model == "m");
}

TEST_CASE("a line that is refused for anything else is not rendered") {
  const Read result = read(R"({"messages":[{"role":"user","content":"x"}],"top_p":5})"
                           "\n"
                           R"({"messages":[{"role":"user"}]})"
                           "\n"
                           R"({"method":"POST","url":"/v1/chat/completions","body":{}})");

  CHECK(result.items.size() == 3);
  CHECK(result.lines.empty());
  CHECK(std::get<Rejection>(result.items[2]).message ==
        "messages: missing; an array of at least one message is expected");
}

TEST_CASE("what the renderer says of a line refuses that line, what else it throws goes through") {
  const std::string line = R"({"messages":[{"role":"user","content":"x"}]})";

  CHECK(error_of(line, []() -> std::string { throw LineError("messages", "messages: no"); }) ==
        "messages|messages: no");
  CHECK_THROWS_AS(read(line, []() -> std::string { throw Error(ExitCode::checkpoint, "endless"); }), Error);
}

TEST_CASE("prompts of chat that do not fit are refused as messages") {
  const std::string line = R"({"messages":[{"role":"user","content":"x"}]})";
  const auto long_text = [] { return std::string(40, '7'); };

  CHECK(
      error_of(line, long_text) ==
      "messages|messages: 40 tokens, at most 31 are allowed (model.max_context 32, of which the completion needs one)");
  CHECK(error_of(line, [] { return std::string(); }) ==
        "messages|messages: the chat template makes no tokens of it; at least one is needed");
  CHECK(error_of(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":28})") ==
        "max_completion_tokens|max_completion_tokens 28: at most 27 is allowed after a prompt of 5 tokens "
        "(model.max_context 32)");
}

TEST_CASE("without a tokenizer chat is refused and nothing is rendered") {
  const Read result = read(R"({"messages":[{"role":"user","content":"x"}]})", [] { return text; }, false);

  CHECK(std::get<Rejection>(result.items.at(0)).message ==
        "messages: the checkpoint has no tokenizer; give token ids as \"prompt\"");
  CHECK(result.lines.empty());
}
