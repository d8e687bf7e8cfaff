#include "placement/node_order.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

NodeOrder node_order(std::span<const std::int64_t> rank_to_node) {
  METRO_REQUIRE(!rank_to_node.empty(), "no ranks");
  NodeOrder order;
  order.ranks.resize(rank_to_node.size());
  std::iota(order.ranks.begin(), order.ranks.end(), 0);
  std::ranges::stable_sort(order.ranks, {}, [&](std::int64_t rank) { return rank_to_node[at(rank)]; });
  const std::int64_t num_nodes = 1 + std::ranges::max(rank_to_node);
  std::vector<std::int64_t> num_ranks(at(num_nodes));
  for (const std::int64_t node : rank_to_node) {
    ++num_ranks[at(node)];
  }
  const bool are_equal = std::ranges::count(num_ranks, num_ranks[0]) == num_nodes;
  order.num_nodes = are_equal ? num_nodes : 1;
  return order;
}

Placement on_ranks_of(const NodeOrder& order, Placement by_node) {
  const std::int64_t slots = by_node.slots_per_rank;
  const std::int64_t num_ranks = by_node.num_ranks;
  METRO_REQUIRE(std::ssize(order.ranks) == num_ranks, "a placement for other ranks");
  const std::vector<std::int32_t> from = by_node.slot_to_expert;
  for (std::int64_t layer = 0; layer < by_node.num_layers; ++layer) {
    for (std::int64_t i = 0; i < num_ranks; ++i) {
      std::copy_n(from.begin() + (layer * num_ranks + i) * slots, slots,
                  by_node.slot_to_expert.begin() + (layer * num_ranks + order.ranks[at(i)]) * slots);
    }
  }
  return by_node;
}

}  // namespace metro
