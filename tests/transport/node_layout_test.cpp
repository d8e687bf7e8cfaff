#include "transport/node_layout.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::NodeLayout;
using Ranks = std::vector<std::int64_t>;

namespace {

Ranks list(std::span<const std::int64_t> ranks) {
  return {ranks.begin(), ranks.end()};
}

}  // namespace

TEST_CASE("nodes are numbered in the order of their lowest ranks") {
  const auto nodes = [](std::vector<std::int64_t> lowest) { return metro::number_nodes(lowest); };

  CHECK(nodes({0}) == std::vector<std::int64_t>{0});
  CHECK(nodes({0, 0, 0, 0}) == std::vector<std::int64_t>{0, 0, 0, 0});
  CHECK(nodes({0, 0, 2, 2}) == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(nodes({0, 1, 0, 1, 4, 1}) == std::vector<std::int64_t>{0, 1, 0, 1, 2, 1});  // placed round robin
}

TEST_CASE("a layout lists the ranks of each node in ascending order, and all of them node by node") {
  const NodeLayout layout({0, 1, 0, 2, 1, 1}, 4);

  CHECK(layout.num_nodes() == 3);
  CHECK(layout.own_node() == 1);
  CHECK(list(layout.ranks_of(0)) == Ranks{0, 2});
  CHECK(list(layout.ranks_of(1)) == Ranks{1, 4, 5});
  CHECK(list(layout.ranks_of(2)) == Ranks{3});
  CHECK(list(layout.order()) == Ranks{0, 2, 1, 4, 5, 3});
  CHECK(layout.leader_of(1) == 1);
}

TEST_CASE("there are two levels where ranks share some of several nodes") {
  CHECK(NodeLayout({0, 0, 1, 1}, 0).has_two_levels());
  CHECK(NodeLayout({0, 0, 0, 1}, 3).has_two_levels());
  CHECK_FALSE(NodeLayout({0, 0, 0}, 0).has_two_levels());
  CHECK_FALSE(NodeLayout({0, 1, 2}, 0).has_two_levels());
  CHECK_FALSE(NodeLayout({0}, 0).has_two_levels());
}

TEST_CASE("a node without ranks is a bug") {
  CHECK_THROWS_AS(NodeLayout({0, 2}, 0), metro::Bug);
  CHECK_THROWS_AS(NodeLayout({1, 1}, 0), metro::Bug);
}
