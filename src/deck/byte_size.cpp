#include "deck/byte_size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace metro {

namespace {

struct ByteUnit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::size_t num_binary_units = 5;  // these come first, ascending, and are the ones printed
constexpr std::array<ByteUnit, 10> units = {{{"B", 1},
                                             {"KiB", std::int64_t{1} << 10},
                                             {"MiB", std::int64_t{1} << 20},
                                             {"GiB", std::int64_t{1} << 30},
                                             {"TiB", std::int64_t{1} << 40},
                                             {"kB", 1'000},
                                             {"KB", 1'000},
                                             {"MB", 1'000'000},
                                             {"GB", 1'000'000'000},
                                             {"TB", 1'000'000'000'000}}};

}  // namespace

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc{} || count < 0) {
    return std::nullopt;
  }
  std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  if (name.empty()) {
    return count;
  }
  for (const ByteUnit& unit : units) {
    if (unit.name == name) {
      return count <= std::numeric_limits<std::int64_t>::max() / unit.bytes ? std::optional(count * unit.bytes)
                                                                            : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string byte_units() {
  return "B, KiB, MiB, GiB, TiB, kB, MB, GB, TB";
}

std::string exact_byte_size(std::int64_t bytes) {
  std::size_t unit_idx = 0;
  while (bytes > 0 && unit_idx + 1 < num_binary_units && bytes % units[unit_idx + 1].bytes == 0) {
    ++unit_idx;
  }
  return fmt::format("{} {}", bytes / units[unit_idx].bytes, units[unit_idx].name);
}

std::string rounded_byte_size(std::int64_t bytes) {
  std::size_t unit_idx = 0;
  while (unit_idx + 1 < num_binary_units && bytes >= units[unit_idx + 1].bytes) {
    ++unit_idx;
  }
  const double count = static_cast<double>(bytes) / static_cast<double>(units[unit_idx].bytes);
  const int digits = unit_idx == 0 || count >= 100.0 ? 0 : (count >= 10.0 ? 1 : 2);
  return fmt::format("{:.{}f} {}", count, digits, units[unit_idx].name);
}

}  // namespace metro
