// Keeping rows on their node is a transport problem: every active expert goes to one of its hosts, a rank takes at most
// lambda, and the rows that leave their node are the price. Experts on a rank can be handed on around a cycle of ranks,
// or along a path to a rank with room. An assignment has the least price exactly if no cycle lowers it; Bellman and
// Ford's search finds one that does. A path is a cycle through one more node, "room".
#include "routing/node_preference.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

NodePreference::NodePreference(const ReplicaMap& map, std::span<const std::int32_t> rank_to_node)
    : map_(&map),
      rank_to_node_(rank_to_node.begin(), rank_to_node.end()),
      num_nodes_(1 + *std::max_element(rank_to_node.begin(), rank_to_node.end())),
      rows_of_expert_(at(map.num_experts())),
      rows_of_rank_(at(map.num_ranks())),
      distance_(at(map.num_ranks() + 1)),
      previous_(at(map.num_ranks() + 1)),
      moved_expert_(at(map.num_ranks() + 1)),
      visit_(at(map.num_ranks() + 1)) {
  METRO_REQUIRE(std::ssize(rank_to_node) == map.num_ranks(), fmt::format("{} nodes of ranks", rank_to_node.size()));
  movable_.reserve(at(map.num_experts()));
}

std::int64_t NodePreference::num_bytes() const {
  return held_bytes(rank_to_node_, movable_, previous_, moved_expert_, visit_) +
         held_bytes(rows_of_expert_, rows_of_rank_, distance_);
}

std::int64_t NodePreference::rows_from_node_of(std::int32_t rank, std::int32_t expert) const {
  return counts_of_nodes_[at(rank_to_node_[at(rank)] * map_->num_experts() + expert)];
}

void NodePreference::improve(std::span<const std::int32_t> counts_of_nodes, std::int32_t lambda,
                             std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated) {
  METRO_REQUIRE(std::ssize(counts_of_nodes) == num_nodes_ * map_->num_experts(),
                fmt::format("{} counts", counts_of_nodes.size()));
  counts_of_nodes_ = counts_of_nodes;
  movable_.clear();
  std::fill(rows_of_rank_.begin(), rows_of_rank_.end(), 0);
  for (std::int32_t expert = 0; expert < map_->num_experts(); ++expert) {
    if (expert_to_rank[at(expert)] < 0) {
      continue;
    }
    std::int64_t rows = 0;
    for (std::int64_t node = 0; node < num_nodes_; ++node) {
      rows += counts_of_nodes[at(node * map_->num_experts() + expert)];
    }
    rows_of_expert_[at(expert)] = rows;
    rows_of_rank_[at(expert_to_rank[at(expert)])] += rows;
    if (map_->hosts_of(expert).size() > 1) {
      movable_.push_back(expert);
    }
  }
  while (cancel_one_cycle(lambda, expert_to_rank, activated)) {
  }
  while (lower_busiest(lambda, expert_to_rank, activated)) {
  }
}

// One round over all edges. Returns whether a shorter way was found.
bool NodePreference::relax(std::int32_t lambda, std::span<const std::int32_t> expert_to_rank,
                           std::span<const std::int32_t> activated) {
  const auto room = static_cast<std::int32_t>(map_->num_ranks());
  bool is_shorter = false;
  const auto go = [&](std::int32_t from, std::int32_t to, std::int64_t price, std::int32_t expert) {
    if (distance_[at(from)] + price < distance_[at(to)]) {
      distance_[at(to)] = distance_[at(from)] + price;
      previous_[at(to)] = from;
      moved_expert_[at(to)] = expert;
      is_shorter = true;
    }
  };
  for (const std::int32_t expert : movable_) {
    const std::int32_t from = expert_to_rank[at(expert)];
    for (const std::int32_t to : map_->hosts_of(expert)) {
      if (to != from) {
        go(from, to, rows_from_node_of(from, expert) - rows_from_node_of(to, expert), expert);
      }
    }
  }
  for (std::int32_t rank = 0; rank < room; ++rank) {
    if (activated[at(rank)] < lambda) {
      go(rank, room, 0, -1);
    }
  }
  for (std::int32_t rank = 0; rank < room; ++rank) {
    go(room, rank, 0, -1);  // a rank can always have one expert less, if it has one to give
  }
  return is_shorter;
}

// A rank (or `room`) on a cycle of previous_, or -1.
std::int32_t NodePreference::rank_on_cycle() {
  std::fill(visit_.begin(), visit_.end(), -1);
  for (std::int32_t start = 0; start < std::ssize(visit_); ++start) {
    for (std::int32_t rank = start; rank >= 0; rank = previous_[at(rank)]) {
      if (visit_[at(rank)] == start) {
        return rank;
      }
      if (visit_[at(rank)] >= 0) {
        break;
      }
      visit_[at(rank)] = start;
    }
  }
  return -1;
}

bool NodePreference::cancel_one_cycle(std::int32_t lambda, std::span<std::int32_t> expert_to_rank,
                                      std::span<std::int32_t> activated) {
  std::fill(distance_.begin(), distance_.end(), 0);
  std::fill(previous_.begin(), previous_.end(), -1);
  std::int32_t end = -1;
  while (end < 0) {
    if (!relax(lambda, expert_to_rank, activated)) {
      return false;
    }
    end = rank_on_cycle();
  }
  std::int32_t to = end;
  do {
    const std::int32_t from = previous_[at(to)];
    const std::int32_t expert = moved_expert_[at(to)];
    if (expert >= 0) {
      expert_to_rank[at(expert)] = to;
      rows_of_rank_[at(from)] -= rows_of_expert_[at(expert)];
      rows_of_rank_[at(to)] += rows_of_expert_[at(expert)];
      --activated[at(from)];
      ++activated[at(to)];
    }
    to = from;
  } while (to != end);
  return true;
}

// Takes rows off the lowest of the ranks with the most, for the first expert for which that is possible.
bool NodePreference::lower_busiest(std::int32_t lambda, std::span<std::int32_t> expert_to_rank,
                                   std::span<std::int32_t> activated) {
  const auto busiest =
      static_cast<std::int32_t>(std::max_element(rows_of_rank_.begin(), rows_of_rank_.end()) - rows_of_rank_.begin());
  for (const std::int32_t expert : movable_) {
    if (expert_to_rank[at(expert)] != busiest) {
      continue;
    }
    for (const std::int32_t to_rank : map_->hosts_of(expert)) {
      if (to_rank != busiest && try_to_move(expert, to_rank, lambda, expert_to_rank, activated)) {
        return true;
      }
    }
  }
  return false;
}

// Moves `expert`, alone or against an expert of to_rank with fewer rows, if both ranks then have fewer rows than the
// busiest has now and no more rows leave their node.
bool NodePreference::try_to_move(std::int32_t expert, std::int32_t to_rank, std::int32_t lambda,
                                 std::span<std::int32_t> expert_to_rank, std::span<std::int32_t> activated) {
  const std::int32_t from_rank = expert_to_rank[at(expert)];
  const std::int64_t most = rows_of_rank_[at(from_rank)];
  const std::int64_t rows = rows_of_expert_[at(expert)];
  const std::int64_t price = rows_from_node_of(from_rank, expert) - rows_from_node_of(to_rank, expert);
  if (activated[at(to_rank)] < lambda && price <= 0 && rows_of_rank_[at(to_rank)] + rows < most) {
    expert_to_rank[at(expert)] = to_rank;
    --activated[at(from_rank)];
    ++activated[at(to_rank)];
    rows_of_rank_[at(from_rank)] -= rows;
    rows_of_rank_[at(to_rank)] += rows;
    return true;
  }
  for (const std::int32_t other : movable_) {
    const std::int64_t gain = rows - rows_of_expert_[at(other)];
    if (expert_to_rank[at(other)] != to_rank || gain <= 0 || rows_of_rank_[at(to_rank)] + gain >= most) {
      continue;
    }
    const auto hosts = map_->hosts_of(other);
    const std::int64_t way_back = rows_from_node_of(to_rank, other) - rows_from_node_of(from_rank, other);
    if (std::find(hosts.begin(), hosts.end(), from_rank) != hosts.end() && price + way_back <= 0) {
      expert_to_rank[at(expert)] = to_rank;
      expert_to_rank[at(other)] = from_rank;
      rows_of_rank_[at(from_rank)] -= gain;
      rows_of_rank_[at(to_rank)] += gain;
      return true;
    }
  }
  return false;
}

}  // namespace metro
