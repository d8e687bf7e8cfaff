#include "requests/kv_blocks.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <limits>

namespace metro {

KvBlocks::KvBlocks(std::int64_t num_blocks) : num_blocks_(num_blocks) {
  METRO_REQUIRE(num_blocks >= 1 && num_blocks <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("{} KV blocks", num_blocks));
}

std::int64_t KvBlocks::num_free() const {
  return num_blocks_ - num_touched_ + static_cast<std::int64_t>(returned_.size());
}

std::vector<std::int32_t> KvBlocks::take(std::int64_t count) {
  METRO_REQUIRE(count >= 0 && count <= num_free(), fmt::format("{} blocks wanted, {} free", count, num_free()));

  std::vector<std::int32_t> blocks;
  blocks.reserve(static_cast<std::size_t>(count));
  while (static_cast<std::int64_t>(blocks.size()) < count) {
    // Returned numbers are below the untouched ones.
    if (!returned_.empty()) {
      blocks.push_back(*returned_.begin());
      returned_.erase(returned_.begin());
    } else {
      blocks.push_back(static_cast<std::int32_t>(num_touched_));
      ++num_touched_;
    }
  }
  return blocks;
}

void KvBlocks::give_back(std::span<const std::int32_t> blocks) {
  for (const std::int32_t block : blocks) {
    METRO_REQUIRE(block >= 0 && block < num_touched_, fmt::format("block {} was never taken", block));
    METRO_REQUIRE(returned_.insert(block).second, fmt::format("block {} is free already", block));
  }
}

}  // namespace metro
