// Why an entry never loses the one before it while it is there: who uses an entry uses all before it, and leave()
// begins at the last. So an entry becomes idle after every entry behind it, and forget_oldest() comes to those first.
#include "requests/prefix_cache.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

PrefixCache::PrefixCache(std::int64_t block_tokens, std::int64_t most_entries)
    : block_tokens_(block_tokens), most_entries_(most_entries) {
  METRO_REQUIRE(block_tokens >= 1 && most_entries >= 1,
                fmt::format("{} entries of {} tokens", most_entries, block_tokens));
}

std::span<const std::int32_t> PrefixCache::tokens_of(std::int32_t entry) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(entry * block_tokens_),
                                    static_cast<std::size_t>(block_tokens_));
}

PrefixCache::Link PrefixCache::behind(std::int32_t form, std::int32_t before,
                                      std::span<const std::int32_t> block_tokens) const {
  const std::int32_t own_before = before == none ? -1 - form : before;
  const Digest chain[] = {before == none ? static_cast<Digest>(form) : at(before).digest,
                          digest_of_values(block_tokens)};
  return {own_before, digest_of_values(std::span<const Digest>(chain))};
}

std::int32_t PrefixCache::find_one(const Link& link, std::span<const std::int32_t> block_tokens) const {
  const auto found = by_digest_.find(link.digest);
  if (found == by_digest_.end()) {
    return none;
  }
  const bool same =
      at(found->second).before == link.before && std::ranges::equal(tokens_of(found->second), block_tokens);
  return same ? found->second : none;
}

std::vector<std::int32_t> PrefixCache::find(std::int32_t form, std::span<const std::int32_t> tokens) const {
  std::vector<std::int32_t> found;
  const auto length = static_cast<std::size_t>(block_tokens_);
  for (std::size_t first = 0; first + length <= tokens.size(); first += length) {
    const auto own = tokens.subspan(first, length);
    const std::int32_t entry = find_one(behind(form, found.empty() ? none : found.back(), own), own);
    if (entry == none) {
      break;
    }
    found.push_back(entry);
  }
  return found;
}

std::int64_t PrefixCache::num_idle_among(std::span<const std::int32_t> entries) const {
  return std::ranges::count_if(entries, [&](std::int32_t entry) { return at(entry).num_users == 0; });
}

void PrefixCache::use(std::span<const std::int32_t> entries) {
  for (const std::int32_t entry : entries) {
    if (at(entry).num_users++ == 0) {
      end_idle(entry);
    }
  }
}

void PrefixCache::leave(std::span<const std::int32_t> entries) {
  for (std::size_t i = entries.size(); i-- > 0;) {
    METRO_REQUIRE(at(entries[i]).num_users > 0, fmt::format("nobody uses entry {}", entries[i]));
    if (--at(entries[i]).num_users == 0) {
      become_idle(entries[i]);
    }
  }
}

void PrefixCache::become_idle(std::int32_t entry) {
  at(entry).older = newest_idle_;
  at(entry).newer = none;
  (newest_idle_ == none ? oldest_idle_ : at(newest_idle_).newer) = entry;
  newest_idle_ = entry;
  ++num_idle_;
}

void PrefixCache::end_idle(std::int32_t entry) {
  const std::int32_t older = at(entry).older;
  const std::int32_t newer = at(entry).newer;
  (older == none ? oldest_idle_ : at(older).newer) = newer;
  (newer == none ? newest_idle_ : at(newer).older) = older;
  --num_idle_;
}

std::int32_t PrefixCache::forget_oldest() {
  METRO_REQUIRE(oldest_idle_ != none, "every entry is in use");
  const std::int32_t entry = oldest_idle_;
  end_idle(entry);
  by_digest_.erase(at(entry).digest);
  vacant_.push_back(entry);
  return at(entry).block;
}

std::optional<std::int32_t> PrefixCache::add(std::int32_t form, std::span<const std::int32_t> entries,
                                             std::span<const std::int32_t> tokens, std::int32_t block,
                                             std::int32_t& freed_block) {
  freed_block = none;
  const auto own = tokens.first(static_cast<std::size_t>(block_tokens_));
  const Link link = behind(form, entries.empty() ? none : entries.back(), own);
  if (by_digest_.contains(link.digest)) {
    return std::nullopt;  // known, or other tokens of the same digest: then these are not shared
  }
  if (num_entries() == most_entries_) {
    if (num_idle_ == 0) {
      return std::nullopt;
    }
    freed_block = forget_oldest();
  }
  if (vacant_.empty()) {
    vacant_.push_back(static_cast<std::int32_t>(entries_.size()));
    entries_.emplace_back();
    tokens_.resize(tokens_.size() + own.size());
  }
  const std::int32_t entry = vacant_.back();
  vacant_.pop_back();
  at(entry) = {.digest = link.digest, .before = link.before, .block = block, .num_users = 1};
  std::ranges::copy(own, tokens_.begin() + static_cast<std::ptrdiff_t>(entry * block_tokens_));
  by_digest_.emplace(link.digest, entry);
  return entry;
}

std::int64_t PrefixCache::num_bytes() const {
  // A node of the table holds its pair, a pointer and padding of the allocator.
  constexpr auto node = static_cast<std::int64_t>(sizeof(std::pair<const Digest, std::int32_t>) + 2 * sizeof(void*));
  return static_cast<std::int64_t>(sizeof(*this)) + held_bytes(entries_) + held_bytes(tokens_, vacant_) +
         num_entries() * node + static_cast<std::int64_t>(by_digest_.bucket_count() * sizeof(void*));
}

}  // namespace metro
