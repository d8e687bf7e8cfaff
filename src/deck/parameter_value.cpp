#include "deck/parameter_value.hpp"

#include "base/error.hpp"
#include "deck/byte_size.hpp"
#include "deck/date.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace metro {

namespace {

// A number as TOML has it: with a point or an exponent.
std::string number_in_toml(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

bool is_text(const TomlValue& value) {
  return std::holds_alternative<std::string>(value.content);
}
bool is_text_list(const TomlValue& value) {
  return std::holds_alternative<std::vector<std::string>>(value.content);
}
bool is_whole(const TomlValue& value) {
  return std::holds_alternative<std::int64_t>(value.content);
}

std::string name_of_type(const TomlValue& value) {
  if (const auto* other = std::get_if<OtherValue>(&value.content)) {
    return other->type;
  }
  if (is_text(value)) {
    return "text";
  }
  if (is_text_list(value)) {
    return "an array";
  }
  return is_whole(value) ? "a whole number" : "a number with a fraction";
}

bool has_type_of(const TextRule&, const TomlValue& value) {
  return is_text(value);
}
bool has_type_of(const TextListRule&, const TomlValue& value) {
  return is_text(value) || is_text_list(value);
}
bool has_type_of(const IntegerRule&, const TomlValue& value) {
  return is_whole(value);
}
bool has_type_of(const NumberRule&, const TomlValue& value) {
  return is_whole(value) || std::holds_alternative<double>(value.content);
}
bool has_type_of(const BytesRule&, const TomlValue& value) {
  return is_whole(value) || is_text(value);
}
bool has_type_of(const ShardRule&, const TomlValue& value) {
  return is_text(value);
}
bool has_type_of(const DateRule&, const TomlValue& value) {
  return is_text(value);
}

// What each kind of parameter takes: the value, or nothing when type or range are wrong.

std::optional<std::string> take(const TextRule& rule, const TomlValue& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  if (text == nullptr || text->find('\0') != std::string::npos || (text->empty() && !rule.may_be_empty)) {
    return std::nullopt;
  }
  const bool any_text = rule.choices.empty() && rule.file_ending.empty();
  const bool chosen = std::ranges::find(rule.choices, *text) != rule.choices.end();
  const bool file = !rule.file_ending.empty() && text->ends_with(rule.file_ending);
  return any_text || chosen || file ? std::optional(*text) : std::nullopt;
}

std::optional<std::vector<std::string>> take(const TextListRule&, const TomlValue& value) {
  std::vector<std::string> texts;
  if (const auto* text = std::get_if<std::string>(&value.content)) {
    texts.push_back(*text);
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&value.content)) {
    texts = *list;
  }
  const auto is_bad = [](const std::string& text) { return text.empty() || text.find('\0') != std::string::npos; };
  return texts.empty() || std::ranges::any_of(texts, is_bad) ? std::nullopt : std::optional(texts);
}

std::optional<std::int64_t> take(const IntegerRule& rule, const TomlValue& value) {
  const auto* number = std::get_if<std::int64_t>(&value.content);
  const bool fits = number != nullptr && *number >= rule.minimum && *number <= rule.maximum;
  return fits ? std::optional(*number) : std::nullopt;
}

std::optional<double> take(const NumberRule& rule, const TomlValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value.content);
  const auto* fraction = std::get_if<double>(&value.content);
  if (whole == nullptr && fraction == nullptr) {
    return std::nullopt;
  }
  const double number = whole != nullptr ? static_cast<double>(*whole) : *fraction;
  // NaN fails both comparisons.
  const bool fits = number <= rule.maximum && (rule.minimum_allowed ? number >= rule.minimum : number > rule.minimum);
  return fits ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> take(const BytesRule& rule, const TomlValue& value) {
  std::optional<std::int64_t> bytes;
  if (const auto* text = std::get_if<std::string>(&value.content)) {
    bytes = parse_byte_size(*text);
  } else if (const auto* number = std::get_if<std::int64_t>(&value.content)) {
    bytes = *number;
  }
  return bytes && *bytes >= rule.minimum && *bytes <= rule.maximum ? bytes : std::nullopt;
}

std::optional<Shard> take(const ShardRule&, const TomlValue& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  return text == nullptr ? std::nullopt : shard_of(*text);
}

std::optional<std::string> take(const DateRule&, const TomlValue& value) {
  const auto* text = std::get_if<std::string>(&value.content);
  return text != nullptr && (text->empty() || is_date(*text)) ? std::optional(*text) : std::nullopt;
}

std::string allowed(const TextRule& rule) {
  if (rule.choices.empty() && rule.file_ending.empty()) {
    return rule.may_be_empty ? "a path or \"\"" : "a path";
  }
  std::vector<std::string> words;
  for (const std::string& choice : rule.choices) {
    words.push_back(toml_quoted(choice));
  }
  if (!rule.file_ending.empty()) {
    words.push_back(fmt::format("the path of a file that ends in {}", rule.file_ending));
  }
  const std::string last = words.back();
  words.pop_back();
  return words.empty() ? last : fmt::format("{} or {}", fmt::join(words, ", "), last);
}

std::string allowed(const TextListRule&) {
  return "a path or a list of paths";
}

std::string allowed(const IntegerRule& rule) {
  return fmt::format("a whole number from {} to {}", rule.minimum, rule.maximum);
}

std::string allowed(const NumberRule& rule) {
  return fmt::format(fmt::runtime(rule.minimum_allowed ? "a number from {} to {}" : "a number above {}, at most {}"),
                     number_in_toml(rule.minimum), number_in_toml(rule.maximum));
}

std::string allowed(const BytesRule& rule) {
  return fmt::format("a size from {} to {}", rule.minimum == 0 ? "0" : exact_byte_size(rule.minimum),
                     exact_byte_size(rule.maximum));
}

std::string allowed(const ShardRule&) {
  return fmt::format("\"i/n\" with i from 0 to n - 1 and n from 1 to {}", most_shards);
}

std::string allowed(const DateRule&) {
  return "a day \"YYYY-MM-DD\", a time \"YYYY-MM-DD hh:mm:ss\" or \"\"";
}

std::string in_toml(const TextRule&, const std::string& value) {
  return toml_quoted(value);
}
std::string in_toml(const TextListRule&, const std::vector<std::string>& values) {
  std::vector<std::string> texts;
  std::ranges::transform(values, std::back_inserter(texts), toml_quoted);
  return texts.size() == 1 ? texts.front() : fmt::format("[{}]", fmt::join(texts, ", "));
}
std::string in_toml(const IntegerRule&, std::int64_t value) {
  return fmt::format("{}", value);
}
std::string in_toml(const NumberRule&, double value) {
  return number_in_toml(value);
}
std::string in_toml(const BytesRule&, std::int64_t value) {
  return value % 1024 == 0 && value > 0 ? toml_quoted(exact_byte_size(value)) : fmt::format("{}", value);
}

std::string in_toml(const ShardRule&, const Shard& value) {
  return toml_quoted(text_of(value));
}

std::string in_toml(const DateRule&, const std::string& value) {
  return toml_quoted(value);
}

[[noreturn]] void refuse(const Parameter& parameter, const TomlValue& value, const std::string& where) {
  const std::string unit = parameter.unit.empty() ? "" : fmt::format(" ({})", parameter.unit);
  std::string hint;
  if (std::holds_alternative<BytesRule>(parameter.rule)) {
    hint = fmt::format(", as a whole number or as text such as \"512 MiB\" (units {})", byte_units());
  }
  if (!std::visit([&](const auto& rule) { return has_type_of(rule, value); }, parameter.rule)) {
    hint += ", not " + name_of_type(value);
  }
  throw Error(ExitCode::usage, fmt::format("{}: {} = {}: must be {}{}{}", where, parameter.name,
                                           excerpt(value.written, most_quoted), allowed_values(parameter), unit, hint));
}

}  // namespace

Deck default_deck() {
  Deck deck;
  for (const Parameter& parameter : parameters()) {
    std::visit([&](const auto& rule) { rule.field(deck) = rule.default_value; }, parameter.rule);
  }
  return deck;
}

void store_value(const Parameter& parameter, const TomlValue& value, const std::string& where, Deck& deck) {
  std::visit(
      [&](const auto& rule) {
        const auto taken = take(rule, value);
        if (!taken) {
          refuse(parameter, value, where);
        }
        rule.field(deck) = *taken;
      },
      parameter.rule);
}

std::string allowed_values(const Parameter& parameter) {
  return std::visit([](const auto& rule) { return allowed(rule); }, parameter.rule);
}

std::string value_in_toml(const Parameter& parameter, const Deck& deck) {
  Deck copy = deck;  // the fields of the table give access for writing too
  return std::visit([&](const auto& rule) { return in_toml(rule, rule.field(copy)); }, parameter.rule);
}

}  // namespace metro
