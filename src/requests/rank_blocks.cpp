#include "requests/rank_blocks.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

std::int64_t HeldBlocks::num_bytes() const {
  return held_bytes(blocks, prefix_entries, spare);
}

RankBlocks::RankBlocks(std::int64_t num_blocks, std::int64_t block_tokens, std::int64_t most_entries)
    : blocks_(num_blocks), block_tokens_(block_tokens) {
  if (most_entries > 0) {
    prefixes_.emplace(block_tokens, most_entries);
  }
}

std::int64_t RankBlocks::num_available() const {
  return blocks_.num_free() + (prefixes_ ? prefixes_->num_idle() : 0);
}

std::vector<std::int32_t> RankBlocks::take_own(std::int64_t count) {
  while (blocks_.num_free() < count) {
    const std::int32_t freed = prefixes_->forget_oldest();
    blocks_.give_back({&freed, 1});
  }
  return blocks_.take(count);
}

std::optional<HeldBlocks> RankBlocks::take_unshared(std::int64_t num_blocks) {
  if (num_available() < num_blocks) {
    return std::nullopt;
  }
  HeldBlocks held;
  held.blocks = take_own(num_blocks);
  return held;
}

std::optional<HeldBlocks> RankBlocks::take(const BlockWish& wish) {
  if (!prefixes_ || num_available() < wish.num_blocks - wish.most_shared) {
    return take_unshared(wish.num_blocks);
  }
  HeldBlocks held;
  const std::int64_t num_prefix = std::ssize(wish.prefix) / block_tokens_;
  METRO_REQUIRE(wish.most_shared <= num_prefix && num_prefix <= wish.num_blocks,
                fmt::format("{} shared blocks of {} of {}", wish.most_shared, num_prefix, wish.num_blocks));
  held.prefix_entries =
      prefixes_->find(wish.form, wish.prefix.first(static_cast<std::size_t>(wish.most_shared * block_tokens_)));
  const std::int64_t num_found = std::ssize(held.prefix_entries);
  const std::int64_t num_own = wish.num_blocks - num_found;
  const std::int64_t num_spare = wish.may_leave ? num_prefix : 0;
  if (num_available() - prefixes_->num_idle_among(held.prefix_entries) < num_own + num_spare) {
    return take_unshared(wish.num_blocks);  // without spare blocks it may fit
  }
  prefixes_->use(held.prefix_entries);
  held.num_shared = num_found;
  for (const std::int32_t entry : held.prefix_entries) {
    held.blocks.push_back(prefixes_->block_of(entry));
  }
  const std::vector<std::int32_t> own = take_own(num_own);
  held.blocks.insert(held.blocks.end(), own.begin(), own.end());
  held.spare = take_own(num_spare);
  make_known(wish, held);
  if (wish.may_leave) {  // nothing was found or made known of the other prefix blocks: they need no second one
    const auto num_needed = held.prefix_entries.size();
    blocks_.give_back(std::span(held.spare).subspan(num_needed));
    held.spare.resize(num_needed);
  }
  return held;
}

// Goes on from what was found, as far as the blocks behind it are not known.
void RankBlocks::make_known(const BlockWish& wish, HeldBlocks& held) {
  const std::int64_t num_prefix = std::ssize(wish.prefix) / block_tokens_;
  for (std::int64_t i = held.num_shared; i < num_prefix; ++i) {
    std::int32_t freed = -1;
    const auto entry =
        prefixes_->add(wish.form, held.prefix_entries, wish.prefix.subspan(static_cast<std::size_t>(i * block_tokens_)),
                       held.blocks[static_cast<std::size_t>(i)], freed);
    if (freed >= 0) {
      blocks_.give_back({&freed, 1});
    }
    if (!entry) {
      return;
    }
    held.prefix_entries.push_back(*entry);
  }
}

void RankBlocks::give_back(const HeldBlocks& held) {
  if (prefixes_) {
    prefixes_->leave(held.prefix_entries);
  }
  blocks_.give_back(std::span(held.blocks).subspan(held.prefix_entries.size()));
  blocks_.give_back(held.spare);
}

void RankBlocks::leave_prefix(HeldBlocks& held) {
  METRO_REQUIRE(held.spare.size() == held.prefix_entries.size(), "the sequence has no blocks to go to");
  if (!prefixes_) {
    return;
  }
  prefixes_->leave(held.prefix_entries);
  held.prefix_entries.clear();
  std::ranges::copy(std::exchange(held.spare, {}), held.blocks.begin());
}

std::int64_t RankBlocks::num_bytes() const {
  return static_cast<std::int64_t>(sizeof(*this) - sizeof(blocks_) - sizeof(prefixes_)) + blocks_.num_bytes() +
         (prefixes_ ? prefixes_->num_bytes() : static_cast<std::int64_t>(sizeof(prefixes_)));
}

}  // namespace metro
