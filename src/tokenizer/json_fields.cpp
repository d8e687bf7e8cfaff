#include "tokenizer/json_fields.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace metro::text {

using nlohmann::json;

namespace {

// The value as JSON on one line, cut to what a message can hold.
std::string shown(const json& value) {
  constexpr std::size_t max_length = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > max_length) {
    text.resize(max_length);
    text += "...";
  }
  return text;
}

[[noreturn]] void fail(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::checkpoint, where + ": " + reason);
}

}  // namespace

const json& object_with(const json& value, std::initializer_list<std::string_view> known, const std::string& where) {
  if (!value.is_object()) {
    fail(where, fmt::format("an object is needed, not {}", shown(value)));
  }
  for (const auto& [key, field] : value.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      fail(where, fmt::format("{:?} is not known; known are {}", key, fmt::join(known, ", ")));
    }
  }
  return value;
}

const json* find_field(const json& object, const char* key) {
  const auto field = object.find(key);
  return field == object.end() || field->is_null() ? nullptr : &*field;
}

const json& require_field(const json& object, const char* key, const std::string& where) {
  const json* field = find_field(object, key);
  if (field == nullptr) {
    fail(where, fmt::format("{} is missing", key));
  }
  return *field;
}

bool bool_field(const json& object, const char* key, const std::string& where, std::optional<bool> otherwise) {
  if (otherwise.has_value() && find_field(object, key) == nullptr) {
    return *otherwise;
  }
  const json& field = require_field(object, key, where);
  if (!field.is_boolean()) {
    fail(where, fmt::format("{} must be true or false, not {}", key, shown(field)));
  }
  return field.get<bool>();
}

std::string string_field(const json& object, const char* key, const std::string& where) {
  const json& field = require_field(object, key, where);
  if (!field.is_string()) {
    fail(where, fmt::format("{} must be a text, not {}", key, shown(field)));
  }
  return field.get<std::string>();
}

const json& list_field(const json& component, const char* key, const std::string& where) {
  const json& list = require_field(component, key, where);
  if (!list.is_array()) {
    fail(where, fmt::format("{} must be a list", key));
  }
  return list;
}

std::string type_of(const json& component, const std::string& where) {
  if (!component.is_object()) {
    fail(where, "an object is needed");
  }
  return string_field(component, "type", where);
}

std::int32_t token_id_of(const json& value, const std::string& where) {
  const bool is_in_range = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{max_token_id};
  if (!is_in_range) {
    fail(where, fmt::format("an id must be an integer from 0 to {}, not {}", max_token_id, shown(value)));
  }
  return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

TokenIds vocabulary_of(const json& value, const std::string& where) {
  if (!value.is_object() || value.empty()) {
    fail(where, fmt::format("an object with at least one token is needed, not {}", shown(value)));
  }
  TokenIds vocabulary;
  vocabulary.reserve(value.size());
  std::unordered_map<std::int32_t, const std::string*> token_of_id;
  token_of_id.reserve(value.size());
  for (auto entry = value.begin(); entry != value.end(); ++entry) {
    const std::string& token = entry.key();
    const std::int32_t id = token_id_of(entry.value(), fmt::format("{}: token {:?}", where, token));
    const auto [other, is_new] = token_of_id.emplace(id, &token);
    if (!is_new) {
      fail(where, fmt::format("tokens {:?} and {:?} have the same id {}", *other->second, token, id));
    }
    vocabulary.emplace(token, id);
  }
  return vocabulary;
}

std::pair<std::string, std::string> merge_of(std::string_view text, const std::string& where) {
  const std::size_t space = text.find(' ');
  const bool is_pair =
      space != text.npos && text.find(' ', space + 1) == text.npos && space > 0 && space + 1 < text.size();
  if (!is_pair) {
    fail(where, fmt::format("a merge is two tokens with one space between them, not {:?}", text));
  }
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

}  // namespace metro::text
