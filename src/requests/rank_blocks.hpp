// The KV blocks of one rank as sequences hold them: blocks of their own, and at the beginning of a prompt blocks that
// several sequences use. Part of the scheduler's replicated state.
#pragma once

#include "requests/kv_blocks.hpp"
#include "requests/prefix_cache.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace metro {

// What a new sequence wants.
struct BlockWish {
  std::int64_t num_blocks = 0;                // for all its positions
  std::int32_t form = 0;                      // of its keys and values, see PrefixCache
  std::span<const std::int32_t> prefix = {};  // tokens whose blocks others may use too; what fills no block is left out
  std::int64_t most_shared = 0;               // so many of these blocks it may use of others
  bool may_leave = false;                     // it may need all blocks for itself later
};

// What it got. The first blocks are entries of the prefix cache, the others its own.
struct HeldBlocks {
  std::vector<std::int32_t> blocks;          // [num_blocks] in position order
  std::vector<std::int32_t> prefix_entries;  // of the first blocks: of others, then those that it made known
  std::int64_t num_shared = 0;               // blocks that were known before
  std::vector<std::int32_t> spare;           // may_leave: one for each of prefix_entries

  std::int64_t num_bytes() const;
};

class RankBlocks {
 public:
  // most_entries: blocks that are known at a time for their tokens; 0: sequences share nothing.
  RankBlocks(std::int64_t num_blocks, std::int64_t block_tokens, std::int64_t most_entries);

  // Blocks that a sequence could take: free ones, and those that are known but not in use.
  std::int64_t num_available() const;

  // Nothing if there is no room, which is never so while num_available() >= wish.num_blocks.
  std::optional<HeldBlocks> take(const BlockWish& wish);
  void give_back(const HeldBlocks& held);

  // From now on all blocks of `held`, which was taken with may_leave, are its own. What others use stays as it is.
  void leave_prefix(HeldBlocks& held);

  std::int64_t num_bytes() const;

 private:
  std::vector<std::int32_t> take_own(std::int64_t count);
  std::optional<HeldBlocks> take_unshared(std::int64_t num_blocks);
  void make_known(const BlockWish& wish, HeldBlocks& held);

  KvBlocks blocks_;
  std::optional<PrefixCache> prefixes_;
  std::int64_t block_tokens_;
};

}  // namespace metro
