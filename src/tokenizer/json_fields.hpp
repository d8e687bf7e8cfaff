// Checked access to the fields of a JSON object. `where` names the object in messages ("tokenizer.json: model").
// All throw Error(checkpoint).
#pragma once

#include "tokenizer/byte_pair_encoder.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace metro::text {

// Ids above have no use and would make tables of absurd size.
constexpr std::int64_t max_token_id = (std::int64_t{1} << 24) - 1;

// The object itself, after checking that it is one and has no keys but `known`.
const nlohmann::json& object_with(const nlohmann::json& value, std::initializer_list<std::string_view> known,
                                  const std::string& where);

// Null if the key is missing or its value is null.
const nlohmann::json* find_field(const nlohmann::json& object, const char* key);
const nlohmann::json& require_field(const nlohmann::json& object, const char* key, const std::string& where);

// A missing or null field is `otherwise`; without `otherwise` it is an error.
bool bool_field(const nlohmann::json& object, const char* key, const std::string& where,
                std::optional<bool> otherwise = std::nullopt);
std::string string_field(const nlohmann::json& object, const char* key, const std::string& where);

// A field that must be there and be a list.
const nlohmann::json& list_field(const nlohmann::json& object, const char* key, const std::string& where);

// The "type" of a component, which must be an object.
std::string type_of(const nlohmann::json& component, const std::string& where);

// A token id: an integer from 0 to max_token_id.
std::int32_t token_id_of(const nlohmann::json& value, const std::string& where);

// {token: id}; no id may appear twice.
TokenIds vocabulary_of(const nlohmann::json& value, const std::string& where);

// Splits "left right" at its one space.
std::pair<std::string, std::string> merge_of(std::string_view text, const std::string& where);

}  // namespace metro::text
