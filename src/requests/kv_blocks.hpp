// The KV blocks of one rank: which are free. The lowest free number is always taken first, so that every rank that
// follows the same order of take and give_back knows the same numbers. Part of the scheduler's replicated state.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace metro {

class KvBlocks {
 public:
  explicit KvBlocks(std::int64_t num_blocks);  // numbers 0 .. num_blocks - 1, all free

  std::int64_t num_free() const;

  // Memory held, with three pointers and a colour for each node of the set.
  std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(sizeof(*this) + returned_.size() * (sizeof(std::int32_t) + 4 * sizeof(void*)));
  }

  // The `count` lowest free numbers, ascending. count <= num_free().
  std::vector<std::int32_t> take(std::int64_t count);

  // The blocks are free again. Each must be taken.
  void give_back(std::span<const std::int32_t> blocks);

 private:
  // Every rank keeps this for all ranks: memory grows with the blocks that were ever taken, not with num_blocks.
  std::int64_t num_blocks_;
  std::int64_t num_touched_ = 0;     // blocks at and above were never taken
  std::set<std::int32_t> returned_;  // free blocks below num_touched_
};

}  // namespace metro
