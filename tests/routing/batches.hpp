// Batches for the tests of StepRouter: ids in row order with the rank every row comes from.
#pragma once

#include "routing/instances.hpp"

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace metro::test {

struct Batch {
  std::int64_t top_k = 1;
  std::vector<std::int32_t> expert_ids;   // [num_rows * top_k]
  std::vector<std::int32_t> row_to_rank;  // [num_rows], ascending

  std::vector<std::int32_t> counts(std::int64_t num_experts) const;
  std::vector<std::int32_t> counts_of_ranks(std::int64_t num_experts, std::int64_t num_ranks) const;
  // The ids of the rows of one rank.
  std::vector<std::int32_t> ids_of(std::int64_t rank) const;
};

// rows_of_rank rows for every rank, each with top_k distinct experts; some are a few times as popular as others.
Batch random_batch(std::int64_t num_experts, std::int64_t top_k, std::span<const std::int64_t> rows_of_rank,
                   std::mt19937_64& random);

}  // namespace metro::test
