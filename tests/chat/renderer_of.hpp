// Renders one line by a template that a test gives.
#pragma once

#include "chat/jinja_renderer.hpp"
#include "requests/field_values.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace metro::test {

inline const std::string renderer_script = METRO_SOURCE_DIR "/tools/chat_renderer.py";

inline ModelFiles files_of(std::map<std::string, std::string> files) {
  return [files = std::move(files)](const std::string& name) {
    const auto found = files.find(name);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

inline JinjaSettings settings_of_tests() {
  return {.checkpoint = "model.h5", .date = "", .patience_s = 60.0, .command = {"python3", renderer_script}};
}

inline std::string a_line() {
  return R"({"messages": [{"role": "user", "content": "Hi"}]})";
}

inline RequestOrigin origin_of_tests() {
  RequestOrigin origin;
  origin.file = "in.jsonl";
  origin.line = 7;
  return origin;
}

inline std::string rendered(const std::string& chat_template, const std::string& line = a_line()) {
  JinjaRenderer renderer(files_of({{"chat_template.jinja", chat_template}}), settings_of_tests());
  return renderer.render(line, origin_of_tests());
}

// The message of the LineError, or "" when the line is rendered.
inline std::string refusal_of(const std::string& chat_template, const std::string& line = a_line()) {
  try {
    rendered(chat_template, line);
  } catch (const LineError& error) {
    CHECK(error.field == "messages");
    return error.what();
  }
  return "";
}

}  // namespace metro::test
