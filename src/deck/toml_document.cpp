#include "deck/toml_document.hpp"

#include "base/error.hpp"
#include "base/utf8.hpp"

#include <fmt/format.h>
#include <toml.hpp>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace metro {

namespace {

using Table = toml::basic_value<toml::discard_comments, std::map>;

struct Malformed {
  std::int64_t line;
  std::string message;
};

constexpr std::int64_t most_nesting = 500;
constexpr std::size_t most_shown = 60;

// First byte after the string that begins at `begin` with a quote.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string triple(3, quote);
  const bool many_lines = text.substr(begin, 3) == triple;
  std::size_t at = begin + (many_lines ? 3 : 1);
  while (at < text.size()) {
    if (text[at] == '\\' && quote == '"') {
      at += 2;
    } else if (many_lines && text.substr(at, 3) == triple) {
      // Up to two quotes may stand directly before the closing three.
      const std::size_t end = std::min(text.find_first_not_of(quote, at), text.size());
      return std::min(end, at + 5);
    } else if (!many_lines && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else {
      ++at;
    }
  }
  return text.size();
}

// The library recurses on brackets and on dotted keys, in parsing and in freeing, and dies of thousands of them. The
// total outside strings and comments bounds every depth.
std::int64_t count_nesting(std::string_view text) {
  std::int64_t count = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '"' || text[at] == '\'') {
      at = end_of_string(text, at);
    } else {
      count += text[at] == '[' || text[at] == '{' || text[at] == '.' ? 1 : 0;
      ++at;
    }
  }
  return count;
}

std::string shown(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  text = end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
  std::size_t length = std::min(text.size(), most_shown);
  while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) {
    --length;  // not within a character of UTF-8
  }
  const std::string result = one_line(std::string(text.substr(0, length)));
  return length < text.size() ? result + "..." : result;
}

// What the library says, in one line: without its own names and the drawing of the source.
std::string explanation(std::string_view what, std::string_view source_line) {
  if (what.find("already exists") != std::string_view::npos) {
    return "repeats a key or table that is set before";
  }
  const std::size_t equals = source_line.find('=');
  const std::size_t value =
      equals == std::string_view::npos ? equals : source_line.find_first_not_of(" \t", equals + 1);
  if (value != std::string_view::npos &&
      std::string_view("\"'[{+-0123456789#\r\n").find(source_line[value]) == std::string_view::npos) {
    return "is not valid TOML; text must stand in quotes";
  }
  std::string_view first_line = what.substr(0, what.find('\n'));
  for (const std::string_view prefix : {"[error] ", "toml::"}) {
    first_line.remove_prefix(first_line.starts_with(prefix) ? prefix.size() : 0);
  }
  if (first_line.starts_with("parse_") || first_line.starts_with("insert_")) {
    first_line.remove_prefix(std::min(first_line.find(':'), first_line.size()));
  }
  const std::size_t begin = first_line.find_first_not_of(": ");
  return begin == std::string_view::npos ? "is not valid TOML"
                                         : fmt::format("is not valid TOML: {}", shown(first_line.substr(begin)));
}

std::variant<Table, Malformed> load(const std::string& text) {
  if (text.size() > most_deck_bytes) {
    return Malformed{1, fmt::format("{} bytes are too many for a deck (at most {})", text.size(), most_deck_bytes)};
  }
  if (count_nesting(text) > most_nesting) {
    return Malformed{1, fmt::format("more than {} brackets and dots outside text; no deck has so many", most_nesting)};
  }
  if (const std::optional<std::size_t> bad = text::first_invalid_byte(text)) {
    // The library (3.7.1) reads beyond its buffers when it meets such a byte in a string.
    return Malformed{1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*bad), '\n'),
                     fmt::format("this is not valid TOML: byte {} is not UTF-8", *bad)};
  }
  std::istringstream stream(text);
  try {
    return toml::parse<toml::discard_comments, std::map>(stream);
  } catch (const toml::exception& failure) {
    const std::string source_line = failure.location().line_str();
    return Malformed{failure.location().line(),
                     fmt::format("'{}' {}", shown(source_line), explanation(failure.what(), source_line))};
  } catch (const std::logic_error&) {  // the library failed while it composed its message
    return Malformed{1, "this is not valid TOML"};
  }
}

std::string name_of_type(const Table& value) {
  switch (value.type()) {
    case toml::value_t::boolean:
      return "a boolean";
    case toml::value_t::array:
      return "an array of values other than text";
    case toml::value_t::table:
      return "a table";
    default:
      return "a date or time";
  }
}

// The elements, if all are text.
std::optional<std::vector<std::string>> texts_of(const Table& value) {
  std::vector<std::string> texts;
  for (const Table& element : value.as_array()) {
    if (!element.is_string()) {
      return std::nullopt;
    }
    texts.push_back(element.as_string().str);
  }
  return texts;
}

TomlValue value_of(const Table& value) {
  const toml::source_location location = value.location();
  const std::string line = location.line_str();
  const std::size_t column = std::min<std::size_t>(location.column() - 1, line.size());
  TomlValue result{OtherValue{}, shown(std::string_view(line).substr(column, location.region()))};
  if (value.is_string()) {
    result.content = value.as_string().str;
  } else if (value.is_integer()) {
    result.content = std::int64_t{value.as_integer()};
  } else if (value.is_floating()) {
    result.content = double{value.as_floating()};
  } else if (const auto texts = value.is_array() ? texts_of(value) : std::nullopt) {
    result.content = *texts;
  } else {
    result.content = OtherValue{name_of_type(value)};
  }
  return result;
}

}  // namespace

std::vector<TomlEntry> parse_toml(const std::string& text, const std::string& origin) {
  const std::variant<Table, Malformed> loaded = load(text);
  if (const auto* malformed = std::get_if<Malformed>(&loaded)) {
    throw Error(ExitCode::usage, fmt::format("{}:{}: {}", origin, malformed->line, malformed->message));
  }

  std::vector<TomlEntry> entries;
  for (const auto& [name, value] : std::get<Table>(loaded).as_table()) {
    if (!value.is_table()) {
      entries.push_back({"", name, value_of(value), value.location().line()});
      continue;
    }
    if (value.as_table().empty()) {
      entries.push_back({name, "", value_of(value), value.location().line()});
    }
    for (const auto& [key, inner] : value.as_table()) {
      if (key.empty()) {  // an empty key stands for an empty table above
        throw Error(ExitCode::usage,
                    fmt::format("{}:{}: table [{}] has a key without a name", origin, inner.location().line(), name));
      }
      entries.push_back({name, key, value_of(inner), inner.location().line()});
    }
  }
  std::ranges::stable_sort(entries, {}, &TomlEntry::line);
  return entries;
}

std::optional<TomlValue> parse_toml_value(const std::string& text) {
  if (text.find_first_of("\r\n") != std::string::npos) {
    return std::nullopt;  // further lines would be further keys
  }
  const std::variant<Table, Malformed> loaded = load("value = " + text);
  if (std::holds_alternative<Malformed>(loaded)) {
    return std::nullopt;
  }
  return value_of(std::get<Table>(loaded).at("value"));
}

std::string toml_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if ((c >= 0 && c < ' ') || c == '\x7f') {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace metro
