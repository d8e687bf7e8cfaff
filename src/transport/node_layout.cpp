#include "transport/node_layout.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace metro {

NodeLayout::NodeLayout(std::vector<std::int64_t> rank_to_node, std::int64_t own_rank)
    : rank_to_node_(std::move(rank_to_node)), order_(rank_to_node_.size()) {
  METRO_REQUIRE(own_rank >= 0 && own_rank < num_ranks(), std::to_string(own_rank));
  own_node_ = node_of(own_rank);
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [this](std::int64_t rank) { return node_of(rank); });
  node_begin_.push_back(0);
  for (std::int64_t i = 0; i < num_ranks(); ++i) {
    const std::int64_t node = node_of(order_[at(i)]);
    METRO_REQUIRE(node == num_nodes() || (node == num_nodes() - 1 && i > 0),
                  "no rank on a node before " + std::to_string(node));
    if (node == num_nodes()) {
      node_begin_.push_back(i);
    }
    node_begin_.back() = i + 1;
  }
}

std::span<const std::int64_t> NodeLayout::ranks_of(std::int64_t node) const {
  const std::int64_t begin = node_begin_[at(node)];
  return std::span(order_).subspan(at(begin), at(node_begin_[at(node + 1)] - begin));
}

std::vector<std::int64_t> number_nodes(std::span<const std::int64_t> rank_to_lowest_rank) {
  std::vector<std::int64_t> rank_to_node;
  std::int64_t num_nodes = 0;
  for (std::size_t rank = 0; rank < rank_to_lowest_rank.size(); ++rank) {
    const auto lowest = static_cast<std::size_t>(rank_to_lowest_rank[rank]);
    METRO_REQUIRE(lowest <= rank, "rank " + std::to_string(rank) + " is below its node's lowest");
    rank_to_node.push_back(lowest == rank ? num_nodes++ : rank_to_node[lowest]);
  }
  return rank_to_node;
}

}  // namespace metro
