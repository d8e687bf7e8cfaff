// EPLB, the placement of deepseek-ai/EPLB: groups of experts to nodes, extra replicas for the busiest experts of a
// node, replicas to the ranks of the node. The global form is the same with one group and one node. Ties go to the
// lower index everywhere, so that every rank computes the same placement. Definition: docs/placement.md.
#include "placement/placement.hpp"

#include "base/error.hpp"
#include "placement/slot_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace metro {

namespace {

struct Shape {
  std::int64_t num_groups, num_nodes, ranks_per_node, slots_per_rank;
};

// Where an item lies: which pack, and how many items lie before it in that pack.
struct Packed {
  std::int64_t pack, position;
};

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// Without any load all experts count the same; else every spare replica would go to the first one.
std::vector<double> equal_if_all_zero(std::vector<double> loads) {
  if (std::all_of(loads.begin(), loads.end(), [](double load) { return load == 0.0; })) {
    std::fill(loads.begin(), loads.end(), 1.0);
  }
  return loads;
}

// Items in descending weight, each to the lightest pack with room; all packs get equally many items.
std::vector<Packed> pack_balanced(const std::vector<double>& weights, std::int64_t num_packs) {
  const auto num_items = std::ssize(weights);
  const std::int64_t items_per_pack = num_items / num_packs;
  std::vector<Packed> packed(weights.size());
  if (items_per_pack == 1) {
    for (std::int64_t item = 0; item < num_items; ++item) {
      packed[index(item)] = {item, 0};
    }
    return packed;
  }
  std::vector<std::int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return weights[index(a)] > weights[index(b)]; });

  // (weight, pack) of the packs with room; the smallest pair is the lightest one, the lower index first.
  std::priority_queue<std::pair<double, std::int64_t>, std::vector<std::pair<double, std::int64_t>>, std::greater<>>
      open_packs;
  for (std::int64_t pack = 0; pack < num_packs; ++pack) {
    open_packs.emplace(0.0, pack);
  }
  std::vector<std::int64_t> num_in_pack(index(num_packs), 0);
  for (const std::int64_t item : order) {
    const auto [weight, pack] = open_packs.top();
    open_packs.pop();
    packed[index(item)] = {pack, num_in_pack[index(pack)]++};
    if (num_in_pack[index(pack)] < items_per_pack) {
      open_packs.emplace(weight + weights[index(item)], pack);
    }
  }
  return packed;
}

// Every expert once in order, then replica after replica to the expert with the largest load per replica.
// Returns replica -> expert [num_replicas] and the replicas of each expert [loads.size()].
std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> replicate(const std::vector<double>& loads,
                                                                          std::int64_t num_replicas) {
  struct Candidate {
    double load_per_replica;
    std::int64_t expert;
  };
  const auto comes_after = [](const Candidate& a, const Candidate& b) {
    return a.load_per_replica != b.load_per_replica ? a.load_per_replica < b.load_per_replica : a.expert > b.expert;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(comes_after)> candidates(comes_after);
  std::vector<std::int64_t> replica_to_expert(loads.size());
  std::iota(replica_to_expert.begin(), replica_to_expert.end(), std::int64_t{0});
  for (const std::int64_t expert : replica_to_expert) {
    candidates.push({loads[index(expert)], expert});
  }
  std::vector<std::int64_t> num_replicas_of(loads.size(), 1);
  while (std::ssize(replica_to_expert) < num_replicas) {
    const std::int64_t expert = candidates.top().expert;
    candidates.pop();
    replica_to_expert.push_back(expert);
    const auto count = static_cast<double>(++num_replicas_of[index(expert)]);
    candidates.push({loads[index(expert)] / count, expert});
  }
  return {replica_to_expert, num_replicas_of};
}

// The experts of every node, in the order of their groups: groups packed by their load.
std::vector<std::vector<std::int64_t>> experts_of_nodes(const std::vector<double>& loads, const Shape& shape) {
  const std::int64_t group_size = std::ssize(loads) / shape.num_groups;
  const std::int64_t groups_per_node = shape.num_groups / shape.num_nodes;
  std::vector<double> group_loads(index(shape.num_groups), 0.0);
  for (std::int64_t expert = 0; expert < std::ssize(loads); ++expert) {
    group_loads[index(expert / group_size)] += loads[index(expert)];
  }
  const std::vector<Packed> packed = pack_balanced(group_loads, shape.num_nodes);
  std::vector<std::vector<std::int64_t>> experts(index(shape.num_nodes),
                                                 std::vector<std::int64_t>(index(groups_per_node * group_size)));
  for (std::int64_t group = 0; group < shape.num_groups; ++group) {
    const auto [node, position] = packed[index(group)];
    for (std::int64_t member = 0; member < group_size; ++member) {
      experts[index(node)][index(position * group_size + member)] = group * group_size + member;
    }
  }
  return experts;
}

// Fills slots [ranks_per_node * slots_per_rank] of one node with `experts`, all of which have a load in `loads`.
void place_node(const std::vector<double>& loads, const std::vector<std::int64_t>& experts, const Shape& shape,
                std::span<std::int32_t> slots) {
  std::vector<double> node_loads;
  for (const std::int64_t expert : experts) {
    node_loads.push_back(loads[index(expert)]);
  }
  node_loads = equal_if_all_zero(std::move(node_loads));
  const auto [replica_to_local, num_replicas_of] = replicate(node_loads, std::ssize(slots));
  std::vector<double> replica_loads;
  for (const std::int64_t local : replica_to_local) {
    replica_loads.push_back(node_loads[index(local)] / static_cast<double>(num_replicas_of[index(local)]));
  }
  const std::vector<Packed> packed = pack_balanced(replica_loads, shape.ranks_per_node);
  for (std::size_t replica = 0; replica < packed.size(); ++replica) {
    const auto [rank, position] = packed[replica];
    const std::int64_t expert = experts[index(replica_to_local[replica])];
    slots[index(rank * shape.slots_per_rank + position)] = static_cast<std::int32_t>(expert);
  }
}

}  // namespace

Placement place_eplb(std::span<const std::int64_t> loads, std::int64_t num_layers, std::int64_t num_experts,
                     std::int64_t num_groups, std::int64_t num_nodes, std::int64_t num_ranks,
                     std::int64_t slots_per_rank) {
  METRO_REQUIRE(num_layers >= 0, fmt::format("num_layers = {}", num_layers));
  METRO_REQUIRE(num_groups >= 1 && num_nodes >= 1, fmt::format("{} groups, {} nodes", num_groups, num_nodes));
  check_slot_budget(num_experts, num_ranks, slots_per_rank);
  METRO_REQUIRE(loads.empty() || std::ssize(loads) == num_layers * num_experts,
                fmt::format("{} loads for {} layers of {} experts", loads.size(), num_layers, num_experts));
  METRO_REQUIRE(std::all_of(loads.begin(), loads.end(), [](std::int64_t load) { return load >= 0; }), "negative load");

  const bool is_hierarchical =
      num_groups > 1 && num_experts % num_groups == 0 && num_groups % num_nodes == 0 && num_ranks % num_nodes == 0;
  const Shape shape = is_hierarchical ? Shape{num_groups, num_nodes, num_ranks / num_nodes, slots_per_rank}
                                      : Shape{1, 1, num_ranks, slots_per_rank};
  Placement placement{num_layers, num_experts, num_ranks, slots_per_rank, {}};
  placement.slot_to_expert.resize(index(num_layers * placement.num_slots()));
  const std::int64_t slots_per_node = shape.ranks_per_node * slots_per_rank;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<double> layer_loads(index(num_experts), 0.0);
    if (!loads.empty()) {
      const auto row = loads.subspan(index(layer * num_experts), index(num_experts));
      std::transform(row.begin(), row.end(), layer_loads.begin(), [](auto load) { return static_cast<double>(load); });
    }
    layer_loads = equal_if_all_zero(std::move(layer_loads));
    const auto experts = experts_of_nodes(layer_loads, shape);
    for (std::int64_t node = 0; node < shape.num_nodes; ++node) {
      const std::int64_t first_slot = layer * placement.num_slots() + node * slots_per_node;
      const auto slots = std::span(placement.slot_to_expert).subspan(index(first_slot), index(slots_per_node));
      place_node(layer_loads, experts[index(node)], shape, slots);
    }
  }
  return placement;
}

}  // namespace metro
