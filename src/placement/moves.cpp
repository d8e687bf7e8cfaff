#include "placement/moves.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

namespace metro {

namespace {

void require_same_shape(const Placement& now, const Placement& next) {
  METRO_REQUIRE(now.num_layers == next.num_layers && now.num_experts == next.num_experts &&
                    now.num_ranks == next.num_ranks && now.slots_per_rank == next.slots_per_rank,
                fmt::format("placements of {} layers, {} experts, {} ranks with {} slots and of {}, {}, {}, {}",
                            now.num_layers, now.num_experts, now.num_ranks, now.slots_per_rank, next.num_layers,
                            next.num_experts, next.num_ranks, next.slots_per_rank));
}

// Ranks that host each expert of a layer, ascending. [num_experts]
std::vector<std::vector<std::int32_t>> hosts_of_experts(const Placement& placement, std::int64_t moe_layer) {
  std::vector<std::vector<std::int32_t>> hosts(at(placement.num_experts));
  for (std::int64_t rank = 0; rank < placement.num_ranks; ++rank) {
    for (const std::int32_t expert : hosted_experts(placement, moe_layer, rank)) {
      hosts[at(expert)].push_back(static_cast<std::int32_t>(rank));
    }
  }
  return hosts;
}

// Reorders the slots `next` of one rank; see keep_slots().
void keep_slots_of_rank(std::span<const std::int32_t> now, std::span<std::int32_t> next) {
  std::vector<std::int32_t> homeless;   // of next, in its order, until one of their slots is found in now
  std::vector<std::size_t> free_slots;  // slots that get something new
  homeless.assign(next.begin(), next.end());
  for (std::size_t slot = 0; slot < now.size(); ++slot) {
    const auto found = std::find(homeless.begin(), homeless.end(), now[slot]);
    if (found == homeless.end()) {
      free_slots.push_back(slot);
    } else {
      next[slot] = now[slot];
      homeless.erase(found);
    }
  }
  for (std::size_t i = 0; i < free_slots.size(); ++i) {
    next[free_slots[i]] = homeless[i];
  }
}

}  // namespace

std::vector<std::int32_t> hosted_experts(const Placement& placement, std::int64_t moe_layer, std::int64_t rank) {
  const auto slots =
      placement.layer(moe_layer).subspan(at(rank * placement.slots_per_rank), at(placement.slots_per_rank));
  std::vector<std::int32_t> experts(slots.begin(), slots.end());
  std::erase(experts, Placement::empty_slot);
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  return experts;
}

Placement keep_slots(const Placement& now, const Placement& next) {
  require_same_shape(now, next);
  Placement kept = next;
  const std::size_t slots = at(now.slots_per_rank);
  for (std::size_t first = 0; first < kept.slot_to_expert.size(); first += slots) {
    keep_slots_of_rank(std::span(now.slot_to_expert).subspan(first, slots),
                       std::span(kept.slot_to_expert).subspan(first, slots));
  }
  return kept;
}

std::int64_t num_slots_changed(const Placement& now, const Placement& next) {
  require_same_shape(now, next);
  return std::inner_product(now.slot_to_expert.begin(), now.slot_to_expert.end(), next.slot_to_expert.begin(),
                            std::int64_t{0}, std::plus<>(), [](std::int32_t a, std::int32_t b) { return a != b; });
}

std::vector<ExpertMove> plan_moves(const Placement& now, const Placement& next, std::int64_t moe_layer) {
  require_same_shape(now, next);
  const auto hosts = hosts_of_experts(now, moe_layer);
  std::vector<ExpertMove> moves;
  for (std::int32_t rank = 0; rank < next.num_ranks; ++rank) {
    for (const std::int32_t expert : hosted_experts(next, moe_layer, rank)) {
      METRO_REQUIRE(!hosts[at(expert)].empty(), fmt::format("expert {} of MoE layer {} is nowhere", expert, moe_layer));
      if (!std::binary_search(hosts[at(expert)].begin(), hosts[at(expert)].end(), rank)) {
        moves.push_back({expert, 0, rank});
      }
    }
  }

  std::vector<std::size_t> order(moves.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return std::tuple(hosts[at(moves[i].expert)].size(), moves[i].expert, moves[i].to_rank);
    };
    return key(a) < key(b);
  });
  std::vector<std::int64_t> sends(at(now.num_ranks), 0);
  for (const std::size_t i : order) {
    const auto& candidates = hosts[at(moves[i].expert)];
    moves[i].from_rank = *std::min_element(candidates.begin(), candidates.end(),
                                           [&](std::int32_t a, std::int32_t b) { return sends[at(a)] < sends[at(b)]; });
    ++sends[at(moves[i].from_rank)];
  }
  return moves;
}

double balancedness(const Placement& placement, std::int64_t moe_layer, std::span<const std::int64_t> loads) {
  METRO_REQUIRE(std::ssize(loads) == placement.num_experts, fmt::format("{} loads", loads.size()));
  const auto slots = placement.layer(moe_layer);
  std::vector<std::int64_t> replicas(loads.size(), 0);
  for (const std::int32_t expert : slots) {
    if (expert != Placement::empty_slot) {
      ++replicas[at(expert)];
    }
  }
  std::vector<double> load_of_rank(at(placement.num_ranks), 0.0);
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] != Placement::empty_slot) {
      load_of_rank[slot / at(placement.slots_per_rank)] +=
          static_cast<double>(loads[at(slots[slot])]) / static_cast<double>(replicas[at(slots[slot])]);
    }
  }
  const double max = *std::max_element(load_of_rank.begin(), load_of_rank.end());
  const double sum = std::accumulate(load_of_rank.begin(), load_of_rank.end(), 0.0);
  return max > 0.0 ? sum / static_cast<double>(placement.num_ranks) / max : 1.0;
}

}  // namespace metro
