#include "base/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>
#include <vector>

namespace metro {

using nlohmann::json;

namespace {

constexpr int max_depth = 64;

constexpr std::size_t longest_reason = 200;
constexpr std::size_t longest_key = 60;

// The library reports what is wrong behind a position: "[json.exception...] parse error at line 1, column 5: ...", and
// then repeats the input, which may be long, no UTF-8, or nothing that a log should have.
std::string reason_of(const json::exception& error) {
  std::string_view text = error.what();
  if (const auto bracket = text.find("] "); bracket != text.npos) {
    text.remove_prefix(bracket + 2);
  }
  return excerpt(text.substr(0, text.find("; last read")), longest_reason);
}

}  // namespace

json parse_json(std::string_view text, const std::string& origin, ExitCode on_failure) {
  // The parser would take a NUL byte for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw Error(on_failure, fmt::format("{}: a NUL byte, number {}", origin, nul + 1));
  }
  std::vector<std::set<std::string>> keys_of_open_objects;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > max_depth) {
      throw Error(on_failure, fmt::format("{}: nested deeper than {} levels", origin, max_depth));
    }
    if (event == json::parse_event_t::object_start) {
      keys_of_open_objects.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_of_open_objects.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_of_open_objects.back().insert(key).second) {
        throw Error(on_failure, fmt::format("{}: key \"{}\" appears twice", origin, excerpt(key, longest_key)));
      }
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    throw Error(on_failure, fmt::format("{}: {}", origin, reason_of(error)));
  }
}

std::string to_json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace metro
