// requests.shard: which lines of the input a run answers when several runs share it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace metro {

// Line `number` (from 1) of the input belongs to the shard with index = (number - 1) mod count.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;

  bool operator==(const Shard&) const = default;
};

constexpr std::int64_t most_shards = std::int64_t{1} << 16;

// "i/n", both plain decimal numbers, 0 <= i < n <= most_shards; nothing for any other text.
std::optional<Shard> shard_of(std::string_view text);
std::string text_of(const Shard& shard);

}  // namespace metro
