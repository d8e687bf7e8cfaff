#include "model/config_fields.hpp"

#include "base/error.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

namespace metro {

using nlohmann::json;

namespace {

// A value as it stands in the file, cut where it would swamp the message.
std::string shown(const json& value) {
  constexpr std::size_t longest = 120;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > longest) {
    text.resize(longest);
    text += "...";
  }
  return text;
}

// What is computed with it is float32: a number that is 0 or infinite there is none.
bool is_positive(const json& value) {
  using Float = std::numeric_limits<float>;
  const double number = value.is_number() ? value.get<double>() : 0.0;
  return number >= static_cast<double>(Float::min()) && number <= static_cast<double>(Float::max());
}

}  // namespace

ConfigFields::ConfigFields(std::string_view json_text, const std::string& origin) : origin_(origin) {
  auto parsed = std::make_shared<const json>(parse_json(json_text, origin, ExitCode::checkpoint));
  if (!parsed->is_object()) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: must be a JSON object, is {}", origin, shown(*parsed)));
  }
  object_ = std::move(parsed);
}

ConfigFields::ConfigFields(std::shared_ptr<const json> object, std::string origin, std::string prefix)
    : object_(std::move(object)), origin_(std::move(origin)), prefix_(std::move(prefix)) {}

const json* ConfigFields::find(const std::string& name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::has(const std::string& name) const {
  return find(name) != nullptr;
}

void ConfigFields::refuse(const std::string& name, const std::string& complaint) const {
  const json* value = find(name);
  throw Error(ExitCode::checkpoint, fmt::format("{}: {}{} = {} {}", origin_, prefix_, name,
                                                value == nullptr ? "null" : shown(*value), complaint));
}

std::string ConfigFields::find_name(Names names) const {
  std::string found;
  for (const char* name : names) {
    if (!has(name)) {
      continue;
    }
    if (!found.empty() && *find(found) != *find(name)) {
      refuse(name, fmt::format("contradicts {} = {}", found, shown(*find(found))));
    }
    found = found.empty() ? name : found;
  }
  return found;
}

std::int64_t ConfigFields::checked_integer(const std::string& name, const json& value, Bounds bounds) const {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits || value.get<std::int64_t>() < bounds.least || value.get<std::int64_t>() > bounds.most) {
    refuse(name, fmt::format("must be an integer from {} to {}", bounds.least, bounds.most));
  }
  return value.get<std::int64_t>();
}

const json& ConfigFields::require(const std::string& name) const {
  const json* value = find(name);
  if (value == nullptr) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: {}{} is missing", origin_, prefix_, name));
  }
  return *value;
}

void ConfigFields::require_field(const std::string& name) const {
  require(name);
}

std::int64_t ConfigFields::integer(Names names, Bounds bounds) const {
  const std::string name = find_name(names);
  if (name.empty()) {
    throw Error(ExitCode::checkpoint, fmt::format("{}: {}{} is missing", origin_, prefix_, fmt::join(names, " or ")));
  }
  return checked_integer(name, require(name), bounds);
}

std::int64_t ConfigFields::integer_or(Names names, Bounds bounds, std::int64_t otherwise) const {
  return find_name(names).empty() ? otherwise : integer(names, bounds);
}

double ConfigFields::positive_number(const std::string& name) const {
  const json& value = require(name);
  if (!is_positive(value)) {
    refuse(name, "must be a positive number that float32 can hold");
  }
  return value.get<double>();
}

bool ConfigFields::boolean(const std::string& name) const {
  if (!require(name).is_boolean()) {
    refuse(name, "must be true or false");
  }
  return require(name).get<bool>();
}

bool ConfigFields::boolean_or(const std::string& name, bool otherwise) const {
  return has(name) ? boolean(name) : otherwise;
}

double ConfigFields::positive_number_or(const std::string& name, double otherwise) const {
  return has(name) ? positive_number(name) : otherwise;
}

std::string ConfigFields::text(const std::string& name) const {
  if (!require(name).is_string()) {
    refuse(name, "must be a string");
  }
  return require(name).get<std::string>();
}

std::vector<std::int64_t> ConfigFields::integers(const std::string& name, Bounds bounds) const {
  std::vector<std::int64_t> result;
  const json* value = find(name);
  if (value == nullptr) {
    return result;
  }
  if (!value->is_array()) {
    result.push_back(checked_integer(name, *value, bounds));
    return result;
  }
  for (const json& element : *value) {
    result.push_back(checked_integer(name, element, bounds));
  }
  return result;
}

std::vector<double> ConfigFields::positive_numbers(const std::string& name) const {
  const json& value = require(name);
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_positive)) {
    refuse(name, "must be a list of positive numbers that float32 can hold");
  }
  return value.get<std::vector<double>>();
}

std::vector<std::string> ConfigFields::texts(const std::string& name) const {
  std::vector<std::string> result;
  const json* value = find(name);
  if (value == nullptr) {
    return result;
  }
  const bool is_list =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const json& text) { return text.is_string(); });
  if (!is_list) {
    refuse(name, "must be a list of strings");
  }
  return value->get<std::vector<std::string>>();
}

std::optional<ConfigFields> ConfigFields::object(const std::string& name) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_object()) {
    refuse(name, "must be an object");
  }
  return ConfigFields(std::make_shared<const json>(*value), origin_, prefix_ + name + ".");
}

void ConfigFields::allow_only(const std::string& name, std::initializer_list<const char*> json_values) const {
  const json* value = find(name);
  if (value == nullptr) {
    return;
  }
  std::string allowed = "absent or null";
  for (const char* text : json_values) {
    if (*value == json::parse(text)) {
      return;
    }
    allowed += fmt::format(", {}", text);
  }
  refuse(name, fmt::format("is not supported (allowed: {})", allowed));
}

void ConfigFields::allow_only_fields(Names names) const {
  for (const auto& [name, value] : object_->items()) {
    const bool known = std::any_of(names.begin(), names.end(),
                                   [&known_as = name](const char* allowed) { return known_as == allowed; });
    if (!known && !value.is_null()) {
      refuse(name, fmt::format("is not supported (allowed fields: {})", fmt::join(names, ", ")));
    }
  }
}

}  // namespace metro
