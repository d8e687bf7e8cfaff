// One parameter and its value: checking and storing it, and showing it.
#pragma once

#include "deck/parameters.hpp"
#include "deck/toml_document.hpp"

#include <string>

namespace metro {

// A deck in which every parameter has its default value.
Deck default_deck();

// Checks type and range and stores the value. Throws Error(usage) "where: table.key = value: must be ...".
void store_value(const Parameter& parameter, const TomlValue& value, const std::string& where, Deck& deck);

// What the parameter may be: "a whole number from 1 to 4096".
std::string allowed_values(const Parameter& parameter);

// Its value in `deck`, in TOML syntax.
std::string value_in_toml(const Parameter& parameter, const Deck& deck);

}  // namespace metro
