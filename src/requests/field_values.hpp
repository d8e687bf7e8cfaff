// Values of body fields: reading them, and refusing them in one form of words. Used by the table of fields.
#pragma once

#include "base/error.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metro {

// What is wrong with a line. `field` is empty when the line as a whole is wrong.
struct LineError : std::runtime_error {
  LineError(std::string in_field, const std::string& message)
      : std::runtime_error(message), field(std::move(in_field)) {}
  std::string field;
};

// A value as JSON, shortened: what an error message quotes.
std::string excerpt(const nlohmann::json& value);

// Throws LineError "FIELD VALUE: ALLOWED".
[[noreturn]] void refuse(std::string_view field, const nlohmann::json& value, std::string_view allowed);

// Nothing for what is no integer or does not fit 64 bits (1.0 is no integer, 2^63 does not fit).
std::optional<std::int64_t> integer_of(const nlohmann::json& value);

// These throw LineError for a value of another kind or outside the bounds; `allowed` is what the message then says.
bool read_bool(std::string_view field, const nlohmann::json& value);
std::string read_string(std::string_view field, const nlohmann::json& value);
std::int64_t read_integer(std::string_view field, const nlohmann::json& value, std::int64_t minimum,
                          std::int64_t maximum, std::string_view allowed);
double read_number(std::string_view field, const nlohmann::json& value, double minimum, double maximum,
                   std::string_view allowed);
// Of an array of ids from 0 to vocab_size - 1.
std::vector<std::int32_t> read_token_ids(std::string_view field, const nlohmann::json& values, std::int64_t vocab_size);

}  // namespace metro
