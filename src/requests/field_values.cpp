#include "requests/field_values.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace metro {

using nlohmann::json;

std::string excerpt(const json& value) {
  return excerpt(value.dump(), 60);
}

void refuse(std::string_view field, const json& value, std::string_view allowed) {
  throw LineError(std::string(field), fmt::format("{} {}: {}", field, excerpt(value), allowed));
}

std::optional<std::int64_t> integer_of(const json& value) {
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return value.is_number_integer() && fits ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

bool read_bool(std::string_view field, const json& value) {
  if (!value.is_boolean()) {
    refuse(field, value, "only true or false is allowed");
  }
  return value.get<bool>();
}

std::string read_string(std::string_view field, const json& value) {
  if (!value.is_string()) {
    refuse(field, value, "a string is expected");
  }
  return value.get<std::string>();
}

std::int64_t read_integer(std::string_view field, const json& value, std::int64_t minimum, std::int64_t maximum,
                          std::string_view allowed) {
  const auto number = integer_of(value);
  if (!number || *number < minimum || *number > maximum) {
    refuse(field, value, allowed);
  }
  return *number;
}

double read_number(std::string_view field, const json& value, double minimum, double maximum,
                   std::string_view allowed) {
  if (!value.is_number() || value.get<double>() < minimum || value.get<double>() > maximum) {
    refuse(field, value, allowed);
  }
  return value.get<double>();
}

std::vector<std::int32_t> read_token_ids(std::string_view field, const json& values, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids;
  ids.reserve(values.size());
  for (const json& value : values) {
    const auto id = integer_of(value);
    if (!id || *id < 0 || *id >= vocab_size) {
      throw LineError(std::string(field), fmt::format("{}[{}]: {} is no token id; ids are integers from 0 to {}", field,
                                                      ids.size(), excerpt(value), vocab_size - 1));
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

}  // namespace metro
