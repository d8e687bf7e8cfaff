#include "decoder/owned_assignments.hpp"

#include "base/integers.hpp"

#include <algorithm>

namespace metro {

OwnedAssignments::OwnedAssignments(std::int64_t num_ranks, std::int64_t max_assignments) : num_by_rank_(at(num_ranks)) {
  begin_.reserve(at(num_ranks + 1));
  next_.reserve(at(num_ranks));
  grouped_.reserve(at(max_assignments));
}

void OwnedAssignments::group(std::span<const std::int32_t> owned_to_rank) {
  std::fill(num_by_rank_.begin(), num_by_rank_.end(), 0);
  for (const std::int32_t rank : owned_to_rank) {
    ++num_by_rank_[at(rank)];
  }
  begin_.assign(1, 0);
  for (const std::int64_t count : num_by_rank_) {
    begin_.push_back(begin_.back() + count);
  }
  grouped_.resize(owned_to_rank.size());
  next_.assign(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < owned_to_rank.size(); ++i) {
    grouped_[at(next_[at(owned_to_rank[i])]++)] = static_cast<std::int64_t>(i);
  }
}

std::span<const std::int64_t> OwnedAssignments::slice(std::int64_t rank, std::int64_t round,
                                                      std::int64_t num_rounds) const {
  const std::int64_t count = num_by_rank_[at(rank)];
  return std::span(grouped_).subspan(at(begin_[at(rank)] + slice_begin(count, round, num_rounds)),
                                     at(slice_size(count, round, num_rounds)));
}

}  // namespace metro
