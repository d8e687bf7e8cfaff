#include "placement/node_order.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::node_order;
using Ranks = std::vector<std::int64_t>;

TEST_CASE("ranks are ordered by their nodes, which count if they are of equal size") {
  CHECK(node_order(Ranks{0, 0, 1, 1}).ranks == Ranks{0, 1, 2, 3});
  CHECK(node_order(Ranks{0, 1, 0, 1}).ranks == Ranks{0, 2, 1, 3});
  CHECK(node_order(Ranks{0, 1, 0, 1}).num_nodes == 2);
  CHECK(node_order(Ranks{0, 0, 0, 1}).num_nodes == 1);
  CHECK(node_order(Ranks{0, 0, 0}).num_nodes == 1);
  CHECK(node_order(Ranks{0, 1, 2}).num_nodes == 3);
}

TEST_CASE("a placement made node by node gives each rank the slots of its place in that order") {
  const metro::Placement by_node{.num_layers = 2,
                                 .num_experts = 8,
                                 .num_ranks = 4,
                                 .slots_per_rank = 2,
                                 .slot_to_expert = {0, 1, 2, 3, 4, 5, 6, 7, 7, 6, 5, 4, 3, 2, 1, 0}};

  const metro::Placement placement = metro::on_ranks_of(node_order(Ranks{0, 1, 0, 1}), by_node);

  CHECK(placement.slot_to_expert == std::vector<std::int32_t>{0, 1, 4, 5, 2, 3, 6, 7, 7, 6, 3, 2, 5, 4, 1, 0});
}
