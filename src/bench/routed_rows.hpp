// How a routing policy spreads the rows of a layer over ranks, by the program's own router on an EPLB placement, for
// made-up router choices (synthetic_batches.hpp).
#pragma once

#include "bench/synthetic_batches.hpp"
#include "routing/policy.hpp"

#include <cstdint>
#include <vector>

namespace metro {

// Means over sampled steps, of one layer.
struct RoutedRows {
  double lambda = 0.0;       // replicas that the busiest rank activates
  double assignments = 0.0;  // (row, expert) that the rank with most of them serves
  double received = 0.0;     // rows of other ranks that come to the rank to which most come, each once
  double sent = 0.0;  // copies of its own rows that a rank sends, mean of ranks: one for each rank that needs them
};

class RowSampler {
 public:
  // choices.num_tokens is how many rows are drawn in all, at least one: all steps are made of these.
  explicit RowSampler(const SyntheticBatches& choices);

  // Of steps with `batch` rows on each rank, at most 64 and as many as there are rows for. At least the rows of one
  // step must have been drawn. slots_per_rank: at least num_experts slots in all.
  RoutedRows sample(RoutingPolicy policy, std::int64_t num_ranks, std::int64_t batch,
                    std::int64_t slots_per_rank) const;

 private:
  SyntheticBatches choices_;
  std::vector<std::int64_t> loads_;       // [num_experts]
  std::vector<std::int32_t> expert_ids_;  // [num_tokens * top_k]
};

}  // namespace metro
