#include "routing/batches.hpp"

#include <algorithm>

namespace metro::test {

std::vector<std::int32_t> Batch::counts(std::int64_t num_experts) const {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(num_experts), 0);
  for (const std::int32_t expert : expert_ids) {
    if (expert >= 0 && expert < num_experts) {
      ++counts[static_cast<std::size_t>(expert)];
    }
  }
  return counts;
}

std::vector<std::int32_t> Batch::counts_of_ranks(std::int64_t num_experts, std::int64_t num_ranks) const {
  std::vector<std::int32_t> counts;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const Batch own{top_k, ids_of(rank), {}};
    const auto own_counts = own.counts(num_experts);
    counts.insert(counts.end(), own_counts.begin(), own_counts.end());
  }
  return counts;
}

std::vector<std::int32_t> Batch::ids_of(std::int64_t rank) const {
  std::vector<std::int32_t> ids;
  for (std::size_t row = 0; row < row_to_rank.size(); ++row) {
    if (row_to_rank[row] == rank) {
      const auto begin = expert_ids.begin() + static_cast<std::ptrdiff_t>(row) * top_k;
      ids.insert(ids.end(), begin, begin + top_k);
    }
  }
  return ids;
}

Batch random_batch(std::int64_t num_experts, std::int64_t top_k, std::span<const std::int64_t> rows_of_rank,
                   std::mt19937_64& random) {
  Batch batch{top_k, {}, {}};
  for (std::size_t rank = 0; rank < rows_of_rank.size(); ++rank) {
    for (std::int64_t row = 0; row < rows_of_rank[rank]; ++row) {
      std::vector<std::int32_t> chosen;
      while (std::ssize(chosen) < top_k) {
        // The product of two uniform numbers favours low ids.
        const auto expert =
            static_cast<std::int32_t>(uniform(random) * uniform(random) * static_cast<double>(num_experts));
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) {
          chosen.push_back(expert);
        }
      }
      batch.expert_ids.insert(batch.expert_ids.end(), chosen.begin(), chosen.end());
      batch.row_to_rank.push_back(static_cast<std::int32_t>(rank));
    }
  }
  return batch;
}

}  // namespace metro::test
