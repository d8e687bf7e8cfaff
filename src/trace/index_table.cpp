#include "trace/index_table.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace metro {

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

}  // namespace

IndexTable::IndexTable(const std::string& path) : path_(path) {
  // Every byte may become a column of its own, which takes dozens of bytes.
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  std::vector<std::string> lines = split(read_file(path, ExitCode::input, most_bytes), '\n');
  if (lines.back().empty()) {
    lines.pop_back();  // the file ends with a line feed
  }
  if (lines.empty()) {
    throw Error(ExitCode::input, path + ": has no header line");
  }
  columns_ = split(lines.front(), '\t');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    rows_.push_back(split(lines[i], '\t'));
    if (rows_.back().size() != columns_.size()) {
      throw Error(ExitCode::input, fmt::format("{}: has {} columns, the header has {}", place(num_rows() - 1),
                                               rows_.back().size(), columns_.size()));
    }
  }
}

std::string IndexTable::place(std::int64_t row) const {
  return fmt::format("{}, line {}", path_, row + 2);
}

const std::string& IndexTable::text(std::int64_t row, std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) {
    throw Error(ExitCode::input, fmt::format("{}: has no column {}", path_, column));
  }
  return rows_[at(row)][static_cast<std::size_t>(found - columns_.begin())];
}

std::int64_t IndexTable::number(std::int64_t row, std::string_view column) const {
  const std::string& shown = text(row, column);
  std::uint32_t value = 0;
  const auto [end, failure] = std::from_chars(shown.data(), shown.data() + shown.size(), value);
  if (failure != std::errc() || end != shown.data() + shown.size()) {
    throw Error(ExitCode::input, fmt::format("{}: {} = '{}' must be an integer of 0 to {}", place(row), column,
                                             excerpt(shown, 40), std::numeric_limits<std::uint32_t>::max()));
  }
  return value;
}

}  // namespace metro
