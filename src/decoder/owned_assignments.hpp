// Own assignments (row * top_k + k) by the rank that serves them, and the rounds in which they travel: round i of n
// takes the slice [count * i / n, count * (i + 1) / n) of the assignments between a pair of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// First assignment of round `round` among `count`.
inline std::int64_t slice_begin(std::int64_t count, std::int64_t round, std::int64_t num_rounds) {
  return count * round / num_rounds;
}
inline std::int64_t slice_size(std::int64_t count, std::int64_t round, std::int64_t num_rounds) {
  return slice_begin(count, round + 1, num_rounds) - slice_begin(count, round, num_rounds);
}

class OwnedAssignments {
 public:
  // Nothing is allocated later, unless there are more than max_assignments.
  OwnedAssignments(std::int64_t num_ranks, std::int64_t max_assignments);

  // owned_to_rank [num_rows * top_k]: the rank that serves each.
  void group(std::span<const std::int32_t> owned_to_rank);

  // Of the last group(): assignments that each rank serves. [num_ranks]
  std::span<const std::int64_t> num_by_rank() const { return num_by_rank_; }
  // Those that `rank` serves in a round, ascending.
  std::span<const std::int64_t> slice(std::int64_t rank, std::int64_t round, std::int64_t num_rounds) const;

 private:
  std::vector<std::int64_t> num_by_rank_;  // [num_ranks]
  std::vector<std::int64_t> begin_;        // [num_ranks + 1] into grouped_
  std::vector<std::int64_t> next_;         // [num_ranks] scratch of group()
  std::vector<std::int64_t> grouped_;
};

}  // namespace metro
