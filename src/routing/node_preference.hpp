// Among the optimal answers of `exact`, one that keeps rows on their node: an optional pass for jobs on several nodes,
// since it needs to know where rows come from.
#pragma once

#include "routing/replica_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class NodePreference {
 public:
  // rank_to_node [num_ranks], nodes 0, 1, ... Keeps a reference to `map`, which must outlive it.
  NodePreference(const ReplicaMap& map, std::span<const std::int32_t> rank_to_node);

  std::int64_t num_nodes() const { return num_nodes_; }
  std::int64_t num_bytes() const;  // memory held

  // counts_of_nodes [num_nodes, num_experts]: rows per expert by the node they come from. expert_to_rank [num_experts]
  // and activated [num_ranks] are an assignment and the active experts per rank; both are changed in place.
  //   1. Among the assignments with at most `lambda` active experts on every rank, one for which the fewest rows are
  //      served away from their node (the minimum, not only an improvement).
  //   2. Then experts change ranks, one at a time or two against each other, as long as that lowers the largest number
  //      of rows on a rank and neither of the above rises.
  void improve(std::span<const std::int32_t> counts_of_nodes, std::int32_t lambda,
               std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated);

 private:
  bool cancel_one_cycle(std::int32_t lambda, std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated);
  bool relax(std::int32_t lambda, std::span<const std::int32_t> expert_to_rank,
             std::span<const std::int32_t> activated);
  std::int32_t rank_on_cycle();
  bool lower_busiest(std::int32_t lambda, std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated);
  bool try_to_move(std::int32_t expert, std::int32_t to_rank, std::int32_t lambda,
                   std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated);
  std::int64_t rows_from_node_of(std::int32_t rank, std::int32_t expert) const;

  const ReplicaMap* map_;
  std::vector<std::int32_t> rank_to_node_;
  std::int64_t num_nodes_;
  std::span<const std::int32_t> counts_of_nodes_;  // of the current call
  std::vector<std::int32_t> movable_;              // active experts with several hosts
  std::vector<std::int64_t> rows_of_expert_;       // [num_experts]
  std::vector<std::int64_t> rows_of_rank_;         // [num_ranks]
  // Shortest ways so far; the last entry stands for "one expert more or less here".
  std::vector<std::int64_t> distance_;      // [num_ranks + 1] rows that leave their node more than before
  std::vector<std::int32_t> previous_;      // [num_ranks + 1] -1: none
  std::vector<std::int32_t> moved_expert_;  // [num_ranks + 1] which expert goes from previous_ to here
  std::vector<std::int32_t> visit_;         // [num_ranks + 1]
};

}  // namespace metro
