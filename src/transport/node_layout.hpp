// Which ranks share a node: the order in which two levels of an exchange see them.
#pragma once

#include "base/integers.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class NodeLayout {
 public:
  // rank_to_node [num_ranks], nodes 0, 1, ... each with at least one rank, in any order.
  NodeLayout(std::vector<std::int64_t> rank_to_node, std::int64_t own_rank);

  std::int64_t num_ranks() const { return static_cast<std::int64_t>(rank_to_node_.size()); }
  std::int64_t num_nodes() const { return static_cast<std::int64_t>(node_begin_.size()) - 1; }
  std::int64_t own_node() const { return own_node_; }
  std::int64_t node_of(std::int64_t rank) const { return rank_to_node_[at(rank)]; }
  // Ascending. The first one sends and receives for the node.
  std::span<const std::int64_t> ranks_of(std::int64_t node) const;
  std::int64_t leader_of(std::int64_t node) const { return ranks_of(node).front(); }
  // All ranks, node by node. [num_ranks]
  std::span<const std::int64_t> order() const { return order_; }

  // Whether ranks share nodes, of which there are several.
  bool has_two_levels() const { return num_nodes() > 1 && num_nodes() < num_ranks(); }

 private:
  std::vector<std::int64_t> rank_to_node_;
  std::vector<std::int64_t> order_;
  std::vector<std::int64_t> node_begin_;  // [num_nodes + 1] into order_
  std::int64_t own_node_;
};

// Numbers nodes in the order of their lowest ranks: rank_to_lowest_rank [size] holds, for each rank, the lowest rank on
// its node. Returns the node of each rank. [size]
std::vector<std::int64_t> number_nodes(std::span<const std::int64_t> rank_to_lowest_rank);

}  // namespace metro
