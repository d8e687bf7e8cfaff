// Placements are made for nodes of equal size with successive ranks each; a job's ranks may lie otherwise.
#pragma once

#include "placement/placement.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

struct NodeOrder {
  std::int64_t num_nodes = 1;       // 1 also where nodes have different numbers of ranks
  std::vector<std::int64_t> ranks;  // all of them, node by node, ascending within each
};

// rank_to_node [num_ranks], nodes 0, 1, ...
NodeOrder node_order(std::span<const std::int64_t> rank_to_node);

// `by_node`, in which the ranks of each node follow each other, with the slots of its i-th rank on order.ranks[i].
Placement on_ranks_of(const NodeOrder& order, Placement by_node);

}  // namespace metro
