// The beginnings of prompts whose keys and values are in the KV blocks of one rank: found again by their tokens, one
// block at a time, so that requests that begin alike use the same blocks. An entry is a block that is full of tokens of
// a prompt, behind the entry of the block before it. Entries that nobody uses stay until their memory is wanted, those
// that were left first go first. Part of the scheduler's replicated state.
#pragma once

#include "base/digest.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace metro {

class PrefixCache {
 public:
  // At most most_entries of blocks of block_tokens positions, both >= 1.
  PrefixCache(std::int64_t block_tokens, std::int64_t most_entries);

  // The entries of the first blocks of `tokens`, as far as they are known. Tokens are compared one by one: digests only
  // say where to look. form: keys and values of different forms of a position differ, and so do their entries.
  std::vector<std::int32_t> find(std::int32_t form, std::span<const std::int32_t> tokens) const;

  std::int32_t block_of(std::int32_t entry) const { return at(entry).block; }
  std::int64_t num_entries() const { return static_cast<std::int64_t>(by_digest_.size()); }
  std::int64_t num_idle() const { return num_idle_; }  // entries that nobody uses
  std::int64_t num_idle_among(std::span<const std::int32_t> entries) const;

  // One more uses the entries / one less. `entries` are a beginning: each behind the one before, the first behind none.
  void use(std::span<const std::int32_t> entries);
  void leave(std::span<const std::int32_t> entries);

  // Makes block number `block` known as the one that holds the first block of `tokens` behind `entries` (a beginning
  // that the caller uses), to be used by the caller. Returns the entry, or nothing: these tokens are known already, or
  // most_entries are in use. The block of an idle entry that had to go is then in freed_block, else -1.
  std::optional<std::int32_t> add(std::int32_t form, std::span<const std::int32_t> entries,
                                  std::span<const std::int32_t> tokens, std::int32_t block, std::int32_t& freed_block);

  // Forgets the idle entry that was left first; there is one. Returns its block.
  std::int32_t forget_oldest();

  // Memory held.
  std::int64_t num_bytes() const;

 private:
  static constexpr std::int32_t none = -1;
  struct Entry {
    Digest digest = 0;          // of form and all tokens from the first block to this one
    std::int32_t before = 0;    // entry of the block before; of first blocks -1 - form
    std::int32_t block = none;  // number among the rank's KV blocks
    std::int32_t num_users = 0;
    std::int32_t older = none, newer = none;  // among the idle ones
  };
  struct Link {  // where a block of tokens belongs
    std::int32_t before = 0;
    Digest digest = 0;
  };

  Link behind(std::int32_t form, std::int32_t before, std::span<const std::int32_t> block_tokens) const;
  std::int32_t find_one(const Link& link, std::span<const std::int32_t> block_tokens) const;
  const Entry& at(std::int32_t entry) const { return entries_[static_cast<std::size_t>(entry)]; }
  Entry& at(std::int32_t entry) { return entries_[static_cast<std::size_t>(entry)]; }
  std::span<const std::int32_t> tokens_of(std::int32_t entry) const;
  void become_idle(std::int32_t entry);
  void end_idle(std::int32_t entry);

  std::int64_t block_tokens_;
  std::int64_t most_entries_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> tokens_;                      // [entries, block_tokens]
  std::vector<std::int32_t> vacant_;                      // places in entries_
  std::unordered_map<Digest, std::int32_t> by_digest_;    // looked up, never walked: its order has no effect
  std::int32_t oldest_idle_ = none, newest_idle_ = none;  // ends of the list through Entry::older and newer
  std::int64_t num_idle_ = 0;
};

}  // namespace metro
