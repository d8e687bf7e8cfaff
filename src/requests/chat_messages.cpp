#include "requests/chat_messages.hpp"

#include "requests/field_values.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace metro {

using nlohmann::json;

namespace {

constexpr std::array roles = {"system", "developer", "user", "assistant", "tool"};

[[noreturn]] void refuse_in(const std::string& field, const std::string& where, const std::string& what) {
  throw LineError(field, fmt::format("{}: {}", where, what));
}

bool is_given(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && !found->is_null();
}

void check_part(const json& part, const std::string& where) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    refuse_in("messages", where, fmt::format("{}: an object with a type is expected", excerpt(part)));
  }
  if (part["type"] != "text") {
    refuse_in("messages", where, fmt::format("type {}: only \"text\" is supported", excerpt(part["type"])));
  }
  if (!part.contains("text") || !part["text"].is_string()) {
    refuse_in("messages", where, "text: a string is expected");
  }
}

void check_content(const json& message, const std::string& where) {
  if (!is_given(message, "content")) {
    if (message["role"] != "assistant" || !is_given(message, "tool_calls")) {
      refuse_in("messages", where, "content: missing; only an assistant with tool_calls may do without");
    }
    return;
  }
  const json& content = message["content"];
  if (content.is_string()) {
    return;
  }
  if (!content.is_array() || content.empty()) {
    refuse_in("messages", where,
              fmt::format("content {}: a string or an array of text parts is expected", excerpt(content)));
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    check_part(content[i], fmt::format("{}.content[{}]", where, i));
  }
}

// A function and its arguments, which templates take as text (as OpenAI has them) or as an object.
void check_tool_call(const json& call, const std::string& where) {
  const bool has_function = call.is_object() && is_given(call, "function") && call["function"].is_object();
  if (!has_function || !call["function"].contains("name") || !call["function"]["name"].is_string()) {
    refuse_in("messages", where,
              fmt::format("{}: an object with a function that has a name is expected", excerpt(call)));
  }
  if (is_given(call["function"], "arguments")) {
    const json& arguments = call["function"]["arguments"];
    if (!arguments.is_string() && !arguments.is_object()) {
      refuse_in("messages", where,
                fmt::format("function.arguments {}: a string or an object is expected", excerpt(arguments)));
    }
  }
}

void check_tool_calls(const json& message, const std::string& where) {
  if (!is_given(message, "tool_calls")) {
    return;
  }
  const json& calls = message["tool_calls"];
  if (!calls.is_array()) {
    refuse_in("messages", where, fmt::format("tool_calls {}: an array is expected", excerpt(calls)));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    check_tool_call(calls[i], fmt::format("{}.tool_calls[{}]", where, i));
  }
}

// Whatever a template might look at must be known: else a slip of the pen would go unnoticed.
void check_other_fields(const json& message, const std::string& where) {
  constexpr std::array texts = {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"};
  for (const auto& [name, value] : message.items()) {
    if (value.is_null() || name == "role" || name == "content" || name == "tool_calls") {
      continue;
    }
    if (std::find(texts.begin(), texts.end(), name) != texts.end()) {
      if (!value.is_string()) {
        refuse_in("messages", where, fmt::format("{} {}: a string is expected", name, excerpt(value)));
      }
    } else if (name == "prefix") {
      if (!value.is_boolean()) {
        refuse_in("messages", where, fmt::format("prefix {}: only true or false is allowed", excerpt(value)));
      }
    } else {
      refuse_in("messages", where,
                fmt::format("unknown field \"{}\"; a message may have role, content, tool_calls, prefix, {}",
                            excerpt(name, 40), fmt::join(texts, ", ")));
    }
  }
}

void check_message(const json& message, const std::string& where) {
  if (!message.is_object()) {
    refuse_in("messages", where, fmt::format("{}: an object is expected", excerpt(message)));
  }
  if (!is_given(message, "role")) {
    refuse_in("messages", where, "role: missing");
  }
  if (std::find(roles.begin(), roles.end(), message["role"]) == roles.end()) {
    refuse_in("messages", where,
              fmt::format("role {}: only {} are supported", excerpt(message["role"]), fmt::join(roles, ", ")));
  }
  check_other_fields(message, where);
  check_tool_calls(message, where);
  check_content(message, where);
}

}  // namespace

void check_messages(const json& messages) {
  if (!messages.is_array() || messages.empty()) {
    refuse("messages", messages, "an array of at least one message is expected");
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    check_message(messages[i], fmt::format("messages[{}]", i));
  }
}

void check_tools(const json& tools) {
  if (!tools.is_array()) {
    refuse("tools", tools, "an array is expected");
  }
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const json& tool = tools[i];
    const std::string where = fmt::format("tools[{}]", i);
    if (!tool.is_object() || !is_given(tool, "type") || tool["type"] != "function") {
      refuse_in("tools", where, fmt::format("{}: an object of type \"function\" is expected", excerpt(tool)));
    }
    const bool has_name = is_given(tool, "function") && tool["function"].is_object() &&
                          tool["function"].contains("name") && tool["function"]["name"].is_string();
    if (!has_name) {
      refuse_in("tools", where, "function: an object with a name is expected");
    }
  }
}

}  // namespace metro
