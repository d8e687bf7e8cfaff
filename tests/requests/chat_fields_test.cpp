// The fields of a chat body: what they accept, what they refuse and with which words. No line is rendered here: one
// that is right in everything else is refused for want of a renderer.
#include "requests/chat_fields.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <utility>
#include <vector>

using metro::LineError;
using metro::RequestDraft;
using nlohmann::json;

namespace {

const std::string accepted = "messages|messages: chat is not supported here; give \"prompt\"";

RequestDraft draft_of_chat() {
  RequestDraft draft;
  draft.vocab_size = 100;
  draft.origin.is_chat = true;
  return draft;
}

// "field|message" of the error.
std::string error_of(json body, RequestDraft draft = draft_of_chat()) {
  if (!body.contains("messages")) {
    body["messages"] = {{{"role", "user"}, {"content", "Hi"}}};
  }
  try {
    metro::read_request_fields(body, draft);
  } catch (const LineError& error) {
    return error.field + "|" + error.what();
  }
  return "";
}

std::string error_of_message(const json& message) {
  const std::string error = error_of({{"messages", json::array({{{"role", "user"}, {"content", "Hi"}}, message})}});
  return error.starts_with("messages|messages[1]") ? error.substr(std::string("messages|messages[1]").size()) : error;
}

}  // namespace

TEST_CASE("every field of chat accepts null, and its neutral values where it has any") {
  for (const metro::RequestField& field : metro::request_fields(true)) {
    INFO(field.name);
    if (field.name != "messages") {
      CHECK(error_of({{std::string(field.name), nullptr}}) == accepted);
    }
    if (field.read == nullptr) {
      for (const json& value : json::parse(field.neutral)) {
        CHECK(error_of({{std::string(field.name), value}}) == accepted);
      }
    }
  }
}

TEST_CASE("every field of chat refuses a value of the wrong type by name") {
  for (const metro::RequestField& field : metro::request_fields(true)) {
    const std::string name(field.name);
    INFO(name);
    const json body{{name, json::array({json::object()})}};
    CHECK_THAT(error_of(body), Catch::Matchers::StartsWith(name + "|" + name));
  }
}

TEST_CASE("fields of chat with a function accept what they should") {
  const json tool = json::parse(R"({"type": "function", "function": {"name": "f", "parameters": {}}})");
  const std::vector<json> bodies{{{"max_completion_tokens", 5}},
                                 {{"max_completion_tokens", 5}, {"max_tokens", 5}},
                                 {{"logprobs", true}, {"top_logprobs", 20}},
                                 {{"logprobs", false}, {"top_logprobs", 0}},
                                 {{"tools", {tool}}, {"tool_choice", "auto"}},
                                 {{"tools", json::array()}, {"tool_choice", "none"}},
                                 {{"add_generation_prompt", false}, {"continue_final_message", true}},
                                 {{"add_generation_prompt", true}, {"continue_final_message", false}},
                                 {{"reasoning_effort", "low"}, {"response_format", {{"type", "text"}}}},
                                 {{"chat_template_kwargs", {{"enable_thinking", false}}}}};

  for (const json& body : bodies) {
    CHECK(error_of(body) == accepted);
  }
}

TEST_CASE("fields of chat are refused with the value and what is allowed") {
  const std::vector<std::pair<json, std::string>> cases{
      {{{"max_tokens", 0}}, "max_tokens|max_tokens 0: an integer of at least 1 is expected"},
      {{{"max_completion_tokens", 0}},
       "max_completion_tokens|max_completion_tokens 0: an integer of at least 1 is expected"},
      {{{"max_completion_tokens", 5}, {"max_tokens", 6}},
       "max_completion_tokens|max_completion_tokens 5: max_tokens says 6; give one of them"},
      {{{"logprobs", 5}}, "logprobs|logprobs 5: only true or false is allowed"},
      {{{"logprobs", true}, {"top_logprobs", 21}}, "top_logprobs|top_logprobs 21: an integer from 0 to 20 is expected"},
      {{{"top_logprobs", 3}}, "top_logprobs|top_logprobs 3: only allowed with \"logprobs\": true"},
      {{{"tools", "x"}}, "tools|tools \"x\": an array is expected"},
      {{{"tools", {{{"type", "web_search"}}}}},
       "tools|tools[0]: {\"type\":\"web_search\"}: an object of type \"function\" is expected"},
      {{{"tools", {{{"type", "function"}, {"function", {{"x", 1}}}}}}},
       "tools|tools[0]: function: an object with a name is expected"},
      {{{"tool_choice", "required"}},
       "tool_choice|tool_choice \"required\": only \"none\" and \"auto\" are supported: nothing forces a call"},
      {{{"continue_final_message", true}, {"add_generation_prompt", true}},
       "continue_final_message|continue_final_message true: not allowed with add_generation_prompt true, which begins "
       "a "
       "new message"},
      {{{"chat_template_kwargs", 5}}, "chat_template_kwargs|chat_template_kwargs 5: an object is expected"},
      {{{"chat_template_kwargs", {{"tools", 5}}}},
       "chat_template_kwargs|chat_template_kwargs: tools is no variable of its own but a field of the body"},
      {{{"reasoning_effort", 5}}, "reasoning_effort|reasoning_effort 5: a string is expected"},
      {{{"chat_template", "x"}}, "chat_template|chat_template \"x\": only the template of the checkpoint is used"},
      {{{"response_format", {{"type", "json_object"}}}},
       "response_format|response_format {\"type\":\"json_object\"}: only {\"type\":\"text\"} is supported"},
      {{{"functions", json::array()}}, "functions|functions []: not supported; use tools"},
      {{{"modalities", {"audio"}}}, "modalities|modalities [\"audio\"]: only [\"text\"] is supported"},
      {{{"echo", true}}, "echo|echo true: only false is supported"},
      {{{"documents", json::array()}}, "documents|documents []: not supported"},
      {{{"prompt", "x"}}, "prompt|prompt \"x\": a field of completions, not of chat"},
      {{{"suffix", "x"}}, "suffix|suffix \"x\": a field of completions, not of chat"},
      {{{"message", "x"}}, "message|unknown field \"message\"; did you mean \"messages\"?"},
      {{{"best_of", 2}}, "best_of|best_of 2: only the value of n (1) is supported"},
      {{{"messages", nullptr}}, "messages|messages: missing; an array of at least one message is expected"},
      {{{"messages", json::array()}}, "messages|messages []: an array of at least one message is expected"},
      {{{"messages", "Hi"}}, "messages|messages \"Hi\": an array of at least one message is expected"}};

  for (const auto& [body, expected] : cases) {
    CHECK(error_of(body) == expected);
  }
}

TEST_CASE("messages of every role are accepted") {
  const json call = json::parse(R"({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}})");
  json with_object = call;
  with_object["function"]["arguments"] = json::object();
  const json part = json::parse(R"({"type": "text", "text": "a"})");

  for (const char* role : {"system", "developer", "user", "assistant", "tool"}) {
    CHECK(error_of_message({{"role", role}, {"content", "x"}, {"name", "n"}, {"tool_calls", nullptr}}) == accepted);
    CHECK(error_of_message({{"role", role}, {"content", {part, part}}}) == accepted);
  }
  CHECK(error_of_message({{"role", "assistant"}, {"tool_calls", {call, with_object}}}) == accepted);
  CHECK(error_of_message({{"role", "assistant"}, {"content", ""}, {"reasoning_content", "r"}, {"prefix", true}}) ==
        accepted);
  CHECK(error_of_message({{"role", "tool"}, {"content", "x"}, {"tool_call_id", "1"}}) == accepted);
}

TEST_CASE("malformed messages are refused with their number and what is wrong") {
  const json text = json::parse(R"({"role": "user", "content": "x"})");
  const auto with = [&](const char* name, const json& value) {
    json message = text;
    message[name] = value;
    return error_of_message(message);
  };

  CHECK(error_of_message(5) == ": 5: an object is expected");
  CHECK(error_of_message({{"content", "x"}}) == ": role: missing");
  CHECK(with("role", "bot") == ": role \"bot\": only system, developer, user, assistant, tool are supported");
  CHECK(error_of_message({{"role", "user"}}) == ": content: missing; only an assistant with tool_calls may do without");
  CHECK(with("content", 5) == ": content 5: a string or an array of text parts is expected");
  CHECK(with("content", json::array()) == ": content []: a string or an array of text parts is expected");
  CHECK(with("content", json::array({{{"type", "image_url"}, {"image_url", "x"}}})) ==
        ".content[0]: type \"image_url\": only \"text\" is supported");
  CHECK(with("content", {"x"}) == ".content[0]: \"x\": an object with a type is expected");
  CHECK(with("content", json::array({{{"type", "text"}}})) == ".content[0]: text: a string is expected");
  CHECK(with("tool_calls", 5) == ": tool_calls 5: an array is expected");
  CHECK(with("tool_calls", json::array({{{"name", "f"}}})) ==
        ".tool_calls[0]: {\"name\":\"f\"}: an object with a function that has a name is expected");
  CHECK(with("tool_calls", json::array({{{"function", {{"name", "f"}, {"arguments", 5}}}}})) ==
        ".tool_calls[0]: function.arguments 5: a string or an object is expected");
  CHECK(with("name", 5) == ": name 5: a string is expected");
  CHECK(with("prefix", 5) == ": prefix 5: only true or false is allowed");
  CHECK(with("contents", "x") ==
        ": unknown field \"contents\"; a message may have role, content, tool_calls, prefix, name, tool_call_id, "
        "reasoning_content, reasoning, thinking");
}
