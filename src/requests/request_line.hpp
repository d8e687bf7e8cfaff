// The outside of an input line: its text as JSON, what stands beside the body, and the body itself, in the batch form
// or the short form. All throw LineError for what is wrong with the line.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace metro {

bool is_blank(std::string_view line);

// One JSON object.
nlohmann::json parse_line(std::string_view text);

// null counts as absent, in both.
std::optional<std::string> read_custom_id(const nlohmann::json& line);
// When the line says that its request arrives, in seconds from 0 to 10^9.
std::optional<double> read_arrival(const nlohmann::json& line);

// The body of a line of either form; a batch line is one with any of method, url, body (null counts as absent). Whether
// it is a line of chat says its url, in the short form whether it has messages.
nlohmann::json take_body(nlohmann::json line, bool& is_chat);

}  // namespace metro
