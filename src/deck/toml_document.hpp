// The TOML library behind a small interface: a deck as a flat list of keys with their values and lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace metro {

// A value that no parameter can have: a boolean, a date, a table, an array of anything but text.
struct OtherValue {
  std::string type;  // "a boolean"
};

struct TomlValue {
  std::variant<std::string, std::vector<std::string>, std::int64_t, double, OtherValue> content;
  std::string written;  // as it stands in the source, shortened
};

// The library's time grows with values times bytes: a list of 64 KiB takes it seconds, one of 1 MiB minutes.
inline constexpr std::size_t most_deck_bytes = std::size_t{64} << 10;

struct TomlEntry {
  std::string table;  // empty for a key outside all tables
  std::string key;    // empty for a table without keys
  TomlValue value;
  std::int64_t line = 0;
};

// Entries in the order of their lines. Throws Error(usage) "origin:line: ..." for malformed TOML, repeated keys and
// text that is no deck at all (more bytes or more nesting than any deck has).
std::vector<TomlEntry> parse_toml(const std::string& text, const std::string& origin);

// One value in TOML syntax; nothing if `text` is not that.
std::optional<TomlValue> parse_toml_value(const std::string& text);

// `text` as a TOML string with its quotes.
std::string toml_quoted(const std::string& text);

}  // namespace metro
