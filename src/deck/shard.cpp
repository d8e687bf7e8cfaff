#include "deck/shard.hpp"

#include <fmt/format.h>

#include <charconv>

namespace metro {

namespace {

// Digits only: no sign, no space, nothing behind.
std::optional<std::int64_t> whole_number(std::string_view digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (failure != std::errc() || stop != end || digits.front() == '-') {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<Shard> shard_of(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> index = whole_number(text.substr(0, slash));
  const std::optional<std::int64_t> count = whole_number(text.substr(slash + 1));
  if (!index || !count || *count > most_shards || *index >= *count) {
    return std::nullopt;
  }
  return Shard{*index, *count};
}

std::string text_of(const Shard& shard) {
  return fmt::format("{}/{}", shard.index, shard.count);
}

}  // namespace metro
