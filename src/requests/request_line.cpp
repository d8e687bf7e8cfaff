#include "requests/request_line.hpp"

#include "base/error.hpp"
#include "base/json.hpp"
#include "requests/request_fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace metro {

using nlohmann::json;

namespace {

constexpr double most_arrival_s = 1e9;

// The library's text about broken JSON, without the line number, which counts within this one line.
std::string parse_reason(std::string reason) {
  const std::string_view position = "line 1, column";
  if (const auto at = reason.find(position); at != std::string::npos) {
    reason.replace(at, position.size(), "column");
  }
  return reason;
}

constexpr const char* completions_url = "/v1/completions";
constexpr const char* chat_url = "/v1/chat/completions";

const json& require_envelope(const json& line, const char* key, std::initializer_list<const char*> allowed) {
  const auto found = line.find(key);
  if (found == line.end()) {
    throw LineError(key, fmt::format("{}: missing; a batch line has custom_id, method, url and body", key));
  }
  if (std::find(allowed.begin(), allowed.end(), *found) == allowed.end()) {
    throw LineError(
        key, fmt::format("{} {}: only \"{}\" is supported", key, excerpt(*found), fmt::join(allowed, "\" or \"")));
  }
  return *found;
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

json parse_line(std::string_view text) {
  // The parser would take a NUL byte for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw LineError("", fmt::format("the line has a NUL byte at column {}", nul + 1));
  }
  json line;
  try {
    line = parse_json(text, "invalid JSON", ExitCode::input);
  } catch (const Error& error) {
    throw LineError("", parse_reason(error.what()));
  }
  if (!line.is_object()) {
    throw LineError("", fmt::format("a line must be a JSON object, this is: {}", excerpt(line)));
  }
  return line;
}

std::optional<std::string> read_custom_id(const json& line) {
  const auto found = line.find("custom_id");
  if (found == line.end() || found->is_null()) {
    return std::nullopt;
  }
  if (!found->is_string()) {
    throw LineError("custom_id", fmt::format("custom_id {}: a string is expected", excerpt(*found)));
  }
  return found->get<std::string>();
}

std::optional<double> read_arrival(const json& line) {
  const auto found = line.find("arrival_s");
  if (found == line.end() || found->is_null()) {
    return std::nullopt;
  }
  if (!found->is_number() || found->get<double>() < 0.0 || found->get<double>() > most_arrival_s) {
    throw LineError("arrival_s", fmt::format("arrival_s {}: a number of seconds from 0 to {:g} is expected",
                                             excerpt(*found), most_arrival_s));
  }
  return found->get<double>();
}

json take_body(json line, bool& is_chat) {
  line.erase("custom_id");
  line.erase("arrival_s");
  for (const char* key : {"method", "url", "body"}) {
    if (line.contains(key) && line[key].is_null()) {
      line.erase(key);
    }
  }
  if (!line.contains("method") && !line.contains("url") && !line.contains("body")) {
    is_chat = line.contains("messages") && !line["messages"].is_null();
    return line;
  }
  require_envelope(line, "method", {"POST"});
  is_chat = require_envelope(line, "url", {completions_url, chat_url}) == chat_url;
  if (!line.contains("body") || !line["body"].is_object()) {
    throw LineError("body", line.contains("body") ? fmt::format("body {}: an object is expected", excerpt(line["body"]))
                                                  : "body: missing; a batch line has custom_id, method, url and body");
  }
  for (const auto& [key, value] : line.items()) {
    if (key != "method" && key != "url" && key != "body") {
      throw LineError(excerpt(key, 40), fmt::format("unknown field \"{}\" beside body; a batch line has custom_id, "
                                                    "method, url and body",
                                                    excerpt(key, 40)));
    }
  }
  return std::move(line["body"]);
}

}  // namespace metro
