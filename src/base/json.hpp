// Strict JSON: what the library would let pass silently (a repeated key, text after the end) is an error here.
#pragma once

#include "base/error.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace metro {

// Parses one JSON document. Throws Error(on_failure), message beginning with `origin`, for malformed JSON, invalid
// UTF-8, a key that appears twice in an object, or nesting deeper than 64.
nlohmann::json parse_json(std::string_view text, const std::string& origin, ExitCode on_failure);

// Text as one line of JSON without surprises: invalid UTF-8 becomes U+FFFD, keys keep their order.
std::string to_json_line(const nlohmann::ordered_json& value);

}  // namespace metro
