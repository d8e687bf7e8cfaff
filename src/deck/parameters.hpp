// The one table that defines every key of a deck. Reading, checking, help and the reference page go through it.
#pragma once

#include "deck/deck.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace metro {

struct TextRule {
  std::string& (*field)(Deck&) = nullptr;
  std::string default_value;
  std::vector<std::string> choices;  // allowed words; no choices and no file_ending: any path
  std::string file_ending;           // beside the choices: paths that end so; empty: none
  bool may_be_empty = false;
};

// One text or an array of at least one; none of them empty.
struct TextListRule {
  std::vector<std::string>& (*field)(Deck&) = nullptr;
  std::vector<std::string> default_value;
};

struct IntegerRule {
  std::int64_t& (*field)(Deck&) = nullptr;
  std::int64_t default_value = 0;
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
};

struct NumberRule {
  double& (*field)(Deck&) = nullptr;
  double default_value = 0.0;
  double minimum = 0.0;
  double maximum = 0.0;
  bool minimum_allowed = true;  // false: the value must be above the minimum
};

// Whole bytes, written as an integer or as text with a unit ("512 MiB").
struct BytesRule {
  std::int64_t& (*field)(Deck&) = nullptr;
  std::int64_t default_value = 0;
  std::int64_t minimum = 0;
  std::int64_t maximum = 0;
};

// Text "i/n".
struct ShardRule {
  Shard& (*field)(Deck&) = nullptr;
  Shard default_value;
};

// Text "YYYY-MM-DD" or "YYYY-MM-DD hh:mm:ss", or empty.
struct DateRule {
  std::string& (*field)(Deck&) = nullptr;
  std::string default_value;
};

struct Parameter {
  std::string name;  // "table.key"
  std::variant<TextRule, TextListRule, IntegerRule, NumberRule, BytesRule, ShardRule, DateRule> rule;
  bool required;
  std::string unit;  // empty: none
  std::string meaning;

  std::string table() const { return name.substr(0, name.find('.')); }
  std::string key() const { return name.substr(name.find('.') + 1); }
};

// All parameters, those of a table side by side, in the order of the reference page.
const std::vector<Parameter>& parameters();

// nullptr if no parameter has this name.
const Parameter* find_parameter(std::string_view name);

}  // namespace metro
