#include "routing/step_router.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"
#include "routing/token_policies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace metro {

std::vector<std::int32_t> nodes_of_size(std::int64_t num_ranks, std::int64_t ranks_per_node) {
  METRO_REQUIRE(num_ranks >= 1 && ranks_per_node >= 1, fmt::format("{} ranks, {} a node", num_ranks, ranks_per_node));
  std::vector<std::int32_t> rank_to_node;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    rank_to_node.push_back(static_cast<std::int32_t>(rank / ranks_per_node));
  }
  return rank_to_node;
}

StepRouter::StepRouter(RoutingPolicy policy, const ReplicaMap& map, StepRouterOptions options)
    : policy_(policy),
      map_(&map),
      options_(std::move(options)),
      counts_(at(map.num_experts())),
      expert_to_rank_(at(map.num_experts())),
      expert_to_slot_(at(map.num_experts())),
      occurrences_(at(map.num_experts())),
      share_(at(map.num_experts())),
      left_of_share_(at(map.num_experts())),
      is_used_(at(map.num_slots())),
      activated_(at(map.num_ranks())),
      rows_(at(map.num_ranks())) {
  if (options_.rank_to_node.empty()) {
    options_.rank_to_node.assign(at(map.num_ranks()), 0);
  }
  METRO_REQUIRE(std::ssize(options_.rank_to_node) == map.num_ranks(),
                fmt::format("{} nodes for {} ranks", options_.rank_to_node.size(), map.num_ranks()));
  if (is_expert_granular(policy)) {
    expert_router_.emplace(policy, map);
  }
  if (policy == RoutingPolicy::makespan) {
    makespan_.emplace(options_.costs, map);
  }
  if (policy == RoutingPolicy::exact && options_.prefer_own_node) {
    preference_.emplace(map, options_.rank_to_node);
    if (preference_->num_nodes() == 1) {
      preference_.reset();
    } else {
      counts_of_nodes_.resize(at(preference_->num_nodes() * map.num_experts()));
    }
  }
}

std::int64_t StepRouter::num_bytes() const {
  return held_bytes(options_.rank_to_node, counts_, counts_of_nodes_, expert_to_rank_, expert_to_slot_) +
         held_bytes(occurrences_, source_, activated_) + held_bytes(share_, left_of_share_, rows_) +
         held_bytes(is_used_) + (expert_router_ ? expert_router_->num_bytes() : 0) +
         (preference_ ? preference_->num_bytes() : 0) + (makespan_ ? makespan_->num_bytes() : 0);
}

std::int32_t StepRouter::lambda() const {
  return *std::max_element(activated_.begin(), activated_.end());
}

void StepRouter::require_valid(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::int64_t num_rows,
                               std::span<std::int32_t> slots) const {
  METRO_REQUIRE(top_k >= 1 && std::ssize(expert_ids) == num_rows * top_k,
                fmt::format("{} ids for {} rows of {}", expert_ids.size(), num_rows, top_k));
  METRO_REQUIRE(slots.size() == expert_ids.size(), fmt::format("{} slots for {}", slots.size(), expert_ids.size()));
}

void StepRouter::route(std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                       std::span<const std::int32_t> row_to_rank, std::int64_t step, std::int64_t layer,
                       std::span<std::int32_t> slots) {
  require_valid(expert_ids, top_k, std::ssize(row_to_rank), slots);
  for (std::size_t row = 0; row < row_to_rank.size(); ++row) {
    METRO_REQUIRE(row_to_rank[row] >= (row == 0 ? 0 : row_to_rank[row - 1]) && row_to_rank[row] < map_->num_ranks(),
                  fmt::format("row {} of rank {}", row, row_to_rank[row]));
  }
  if (!needs_counts_of_all_ranks(policy_)) {
    route_by_token(expert_ids, top_k, row_to_rank, random_routing_key(options_.seed, step, layer), slots);
    count_used(slots);
    return;
  }
  std::fill(counts_.begin(), counts_.end(), 0);
  std::fill(counts_of_nodes_.begin(), counts_of_nodes_.end(), 0);
  for (std::size_t idx = 0; idx < expert_ids.size(); ++idx) {
    const std::int32_t expert = expert_ids[idx];
    if (expert < 0 || expert >= map_->num_experts()) {
      continue;
    }
    ++counts_[at(expert)];
    if (preference_) {
      const std::int32_t node = options_.rank_to_node[at(row_to_rank[idx / at(top_k)])];
      ++counts_of_nodes_[at(node * map_->num_experts() + expert)];
    }
  }
  route_by_counts();
  begin_shares(0, {});
  slots_from_counts(expert_ids, slots);
}

void StepRouter::route_own(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::int64_t rank,
                           std::span<const std::int32_t> counts_of_ranks, std::int64_t step, std::int64_t layer,
                           std::span<std::int32_t> slots) {
  METRO_REQUIRE(top_k >= 1, fmt::format("top_k = {}", top_k));
  require_valid(expert_ids, top_k, std::ssize(expert_ids) / top_k, slots);
  METRO_REQUIRE(rank >= 0 && rank < map_->num_ranks(), fmt::format("rank {}", rank));
  if (!needs_counts_of_all_ranks(policy_)) {
    METRO_REQUIRE(options_.numbering == RowNumbering::own_rows, "rows of one rank, numbered through all rows");
    source_.assign(expert_ids.size() / at(top_k), static_cast<std::int32_t>(rank));
    route_by_token(expert_ids, top_k, source_, random_routing_key(options_.seed, step, layer), slots);
    count_used(slots);
    return;
  }
  const std::int64_t num_experts = map_->num_experts();
  METRO_REQUIRE(std::ssize(counts_of_ranks) == map_->num_ranks() * num_experts,
                fmt::format("{} counts of all ranks", counts_of_ranks.size()));
  std::fill(counts_.begin(), counts_.end(), 0);
  std::fill(counts_of_nodes_.begin(), counts_of_nodes_.end(), 0);
  for (std::int64_t source = 0; source < map_->num_ranks(); ++source) {
    const auto counts = counts_of_ranks.subspan(at(source * num_experts), at(num_experts));
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      counts_[expert] += counts[expert];
      if (preference_) {
        counts_of_nodes_[at(options_.rank_to_node[at(source)] * num_experts) + expert] += counts[expert];
      }
    }
  }
  route_by_counts();
  begin_shares(rank, counts_of_ranks);
  slots_from_counts(expert_ids, slots);
}

// From counts_ to expert_to_slot_ or to the shares of makespan_, and to activated_ and rows_.
void StepRouter::route_by_counts() {
  std::fill(rows_.begin(), rows_.end(), 0);
  if (makespan_) {
    makespan_->route(counts_);
    std::fill(activated_.begin(), activated_.end(), 0);
    for (std::int64_t expert = 0; expert < map_->num_experts(); ++expert) {
      const auto shares = makespan_->shares_of(expert);
      for (std::size_t host = 0; host < shares.size(); ++host) {
        const std::size_t rank = at(map_->hosts_of(expert)[host]);
        activated_[rank] += shares[host] > 0 ? 1 : 0;
        rows_[rank] += shares[host];
      }
    }
    return;
  }
  expert_router_->route(counts_, expert_to_rank_);
  std::copy(expert_router_->activated().begin(), expert_router_->activated().end(), activated_.begin());
  if (preference_) {
    preference_->improve(counts_of_nodes_, expert_router_->lambda(), expert_to_rank_, activated_);
  }
  for (std::size_t expert = 0; expert < counts_.size(); ++expert) {
    const std::int32_t rank = expert_to_rank_[expert];
    if (rank >= 0) {
      expert_to_slot_[expert] = map_->slot_on_rank(static_cast<std::int64_t>(expert), rank);
      rows_[at(rank)] += counts_[expert];
    }
  }
}

// The rows of an expert, in row order, fill the shares of its hosts in ascending order. Skips those of the ranks before
// `before_rank`.
void StepRouter::begin_shares(std::int64_t before_rank, std::span<const std::int32_t> counts_of_ranks) {
  if (!makespan_) {
    return;
  }
  for (std::int64_t expert = 0; expert < map_->num_experts(); ++expert) {
    std::int64_t skipped = 0;
    for (std::int64_t rank = 0; rank < before_rank; ++rank) {
      skipped += counts_of_ranks[at(rank * map_->num_experts() + expert)];
    }
    const auto shares = makespan_->shares_of(expert);
    std::size_t host = 0;
    while (host + 1 < shares.size() && skipped >= shares[host]) {
      skipped -= shares[host];
      ++host;
    }
    share_[at(expert)] = static_cast<std::int64_t>(host);
    left_of_share_[at(expert)] = shares[host] - skipped;
  }
}

void StepRouter::slots_from_counts(std::span<const std::int32_t> expert_ids, std::span<std::int32_t> slots) {
  for (std::size_t idx = 0; idx < expert_ids.size(); ++idx) {
    const std::int32_t expert = expert_ids[idx];
    if (expert < 0 || expert >= map_->num_experts()) {
      slots[idx] = -1;
    } else if (!makespan_) {
      slots[idx] = expert_to_slot_[at(expert)];
    } else {
      auto& share = share_[at(expert)];
      auto& left = left_of_share_[at(expert)];
      const auto shares = makespan_->shares_of(expert);
      while (left == 0 && at(share) + 1 < shares.size()) {
        left = shares[at(++share)];
      }
      METRO_REQUIRE(left > 0, fmt::format("expert {} has more rows than were counted", expert));
      --left;
      slots[idx] = map_->slot_on_rank(expert, map_->hosts_of(expert)[at(share)]);
    }
  }
}

// Token-granular policies, for every run of rows that is numbered on its own.
void StepRouter::route_by_token(std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                                std::span<const std::int32_t> row_to_rank, std::uint64_t key,
                                std::span<std::int32_t> slots) {
  const bool own_rows = options_.numbering == RowNumbering::own_rows;
  std::size_t end = 0;
  for (std::size_t first = 0; first < row_to_rank.size(); first = end) {
    const std::int32_t rank = row_to_rank[first];
    end = row_to_rank.size();
    if (own_rows) {
      end = at(std::upper_bound(row_to_rank.begin(), row_to_rank.end(), rank) - row_to_rank.begin());
    }
    const std::int64_t start = own_rows ? rank : 0;
    const auto ids = expert_ids.subspan(first * at(top_k), (end - first) * at(top_k));
    const auto out = slots.subspan(first * at(top_k), (end - first) * at(top_k));
    const RowSources sources{row_to_rank.subspan(first, end - first), options_.rank_to_node};
    switch (policy_) {
      case RoutingPolicy::even:
        route_even(*map_, ids, start, occurrences_, out);
        break;
      case RoutingPolicy::vllm_random:
        // Ranks draw apart from one another: 2^32 rows further on for every rank.
        route_vllm_random(*map_, ids, top_k, key, static_cast<std::uint64_t>(start) << 32, out);
        break;
      case RoutingPolicy::vllm_modulo:
        route_vllm_modulo(*map_, ids, out);
        break;
      case RoutingPolicy::vllm_knuth:
        route_vllm_knuth(*map_, ids, top_k, out);
        break;
      case RoutingPolicy::static_choice:
        route_static(*map_, ids, top_k, sources, out);
        break;
      case RoutingPolicy::local:
        route_local(*map_, ids, top_k, sources, start, occurrences_, out);
        break;
      default:
        METRO_REQUIRE(false, fmt::format("policy {}", name_of(policy_)));
    }
  }
}

// activated_ and rows_ from the slots themselves.
void StepRouter::count_used(std::span<const std::int32_t> slots) {
  std::fill(is_used_.begin(), is_used_.end(), std::uint8_t{0});
  std::fill(activated_.begin(), activated_.end(), 0);
  std::fill(rows_.begin(), rows_.end(), 0);
  for (const std::int32_t slot : slots) {
    if (slot >= 0) {
      const std::size_t rank = at(map_->rank_of_slot(slot));
      activated_[rank] += is_used_[at(slot)] == 0 ? 1 : 0;
      is_used_[at(slot)] = 1;
      ++rows_[rank];
    }
  }
}

}  // namespace metro
