// The expert-granular policies: a greedy pass over the active experts and, for `exact`, its repair along augmenting
// paths. This runs once per layer and step on every rank, in about a microsecond: no allocation, no branch on whether
// an expert is active, bit masks instead of lists. Why the repair ends at the optimum: docs/routing.md.
#include "routing/policy.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

namespace metro {

namespace {

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

std::uint64_t bit_of(std::int32_t position) {
  return std::uint64_t{1} << (position % 64);
}

// Load and rank of a rank as one number, load * one_more + rank: the smallest is the rank with the fewest activated,
// the lowest one of several, and is found without a branch.
constexpr std::uint64_t one_more = std::uint64_t{1} << 32;

}  // namespace

ExpertRouter::ExpertRouter(RoutingPolicy policy, const ReplicaMap& map)
    : policy_(policy),
      map_(&map),
      order_(map.experts_by_scarcity().begin(), map.experts_by_scarcity().end()),
      active_(index(map.num_experts())),
      activated_(index(map.num_ranks())),
      load_and_rank_(index(map.num_ranks())),
      num_expert_words_((map.num_experts() + 63) / 64),
      movable_on_rank_(index(map.num_ranks() * num_expert_words_)),
      reached_(index(map.num_mask_words())),
      queue_(index(map.num_ranks())),
      reached_by_expert_(index(map.num_ranks())) {
  METRO_REQUIRE(is_expert_granular(policy), fmt::format("policy {}", name_of(policy)));
  if (policy == RoutingPolicy::metro) {
    std::iota(order_.begin(), order_.end(), 0);
  }
}

std::int64_t ExpertRouter::num_bytes() const {
  return held_bytes(order_, active_, activated_, queue_, reached_by_expert_) +
         held_bytes(load_and_rank_, movable_on_rank_, reached_);
}

void ExpertRouter::route(std::span<const std::int32_t> counts, std::span<std::int32_t> expert_to_rank) {
  METRO_REQUIRE(std::ssize(counts) == map_->num_experts(), fmt::format("{} counts", counts.size()));
  METRO_REQUIRE(std::ssize(expert_to_rank) == map_->num_experts(), fmt::format("{} experts", expert_to_rank.size()));
  std::fill(expert_to_rank.begin(), expert_to_rank.end(), -1);
  const auto active = collect_active(counts);
  assign(active, expert_to_rank);
  if (policy_ == RoutingPolicy::exact) {
    repair(active, expert_to_rank);
  }
}

std::span<const std::int32_t> ExpertRouter::collect_active(std::span<const std::int32_t> counts) {
  std::size_t num_active = 0;
  for (const std::int32_t expert : order_) {
    active_[num_active] = expert;
    num_active += counts[index(expert)] > 0 ? 1U : 0U;  // no branch: which experts are active cannot be predicted
  }
  return std::span(active_).first(num_active);
}

// Each expert in turn to its host with the fewest activated so far.
void ExpertRouter::assign(std::span<const std::int32_t> experts, std::span<std::int32_t> expert_to_rank) {
  for (std::size_t rank = 0; rank < load_and_rank_.size(); ++rank) {
    load_and_rank_[rank] = rank;
  }
  std::uint64_t* const load_and_rank = load_and_rank_.data();
  for (const std::int32_t expert : experts) {
    const auto hosts = map_->hosts_of(expert);
    // The first two without a branch, since whether an expert has one host or two cannot be predicted in id order.
    std::uint64_t best = std::min(load_and_rank[hosts.front()], load_and_rank[hosts[hosts.size() > 1 ? 1 : 0]]);
    for (std::size_t idx = 2; idx < hosts.size(); ++idx) {
      best = std::min(best, load_and_rank[hosts[idx]]);
    }
    const std::uint64_t rank = best % one_more;
    expert_to_rank[index(expert)] = static_cast<std::int32_t>(rank);
    load_and_rank[rank] = best + one_more;
  }
  for (std::size_t rank = 0; rank < activated_.size(); ++rank) {
    activated_[rank] = static_cast<std::int32_t>(load_and_rank_[rank] / one_more);
  }
  lambda_ = *std::max_element(activated_.begin(), activated_.end());
}

// Lowers every rank that carries lambda_ by one, then those of the next level, until the ranks are as even as the
// number of experts allows or one of them cannot be lowered.
void ExpertRouter::repair(std::span<const std::int32_t> active, std::span<std::int32_t> expert_to_rank) {
  const std::int32_t lower_bound = lambda_lower_bound(std::ssize(active), map_->num_ranks());
  if (lambda_ == lower_bound) {
    return;
  }
  std::fill(movable_on_rank_.begin(), movable_on_rank_.end(), std::uint64_t{0});
  for (const std::int32_t expert : active) {
    if (map_->hosts_of(expert).size() > 1) {
      movable_word(expert_to_rank[index(expert)], expert) |= bit_of(expert);
    }
  }
  const auto num_ranks = static_cast<std::int32_t>(map_->num_ranks());
  while (lambda_ > lower_bound) {
    for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
      if (activated_[index(rank)] == lambda_ && !lower_one(rank, expert_to_rank)) {
        return;
      }
    }
    --lambda_;
  }
}

// Searches breadth-first for a rank with at most lambda_ - 2 activated to which from_rank can hand down one expert.
// Ranks in the order they are reached, experts and hosts ascending, the first such rank: these choices are part of the
// definition of `exact`. Returns false if there is none.
bool ExpertRouter::lower_one(std::int32_t from_rank, std::span<std::int32_t> expert_to_rank) {
  std::fill(reached_.begin(), reached_.end(), std::uint64_t{0});
  reached_[index(from_rank / 64)] = bit_of(from_rank);
  queue_[0] = from_rank;
  num_reached_ = 1;
  for (std::size_t queue_idx = 0; queue_idx < num_reached_; ++queue_idx) {
    for (std::int64_t word_idx = 0; word_idx < num_expert_words_; ++word_idx) {
      const auto first_expert = static_cast<std::int32_t>(word_idx * 64);
      for (std::uint64_t bits = movable_word(queue_[queue_idx], first_expert); bits != 0; bits &= bits - 1) {
        const std::int32_t to_rank = reach_hosts_of(first_expert + std::countr_zero(bits));
        if (to_rank >= 0) {
          move_along_path(from_rank, to_rank, expert_to_rank);
          return true;
        }
      }
    }
  }
  return false;
}

// Queues the hosts of `expert` that were not reached before. Returns the first with at most lambda_ - 2, or -1.
std::int32_t ExpertRouter::reach_hosts_of(std::int32_t expert) {
  const auto host_mask = map_->host_mask_of(expert);
  for (std::size_t word_idx = 0; word_idx < reached_.size(); ++word_idx) {
    std::uint64_t fresh = host_mask[word_idx] & ~reached_[word_idx];
    reached_[word_idx] |= fresh;
    for (; fresh != 0; fresh &= fresh - 1) {
      const auto rank = static_cast<std::int32_t>(word_idx * 64) + std::countr_zero(fresh);
      reached_by_expert_[index(rank)] = expert;
      if (activated_[index(rank)] <= lambda_ - 2) {
        return rank;
      }
      queue_[num_reached_++] = rank;
    }
  }
  return -1;
}

// Every expert on the path from from_rank to to_rank goes one rank further. Only the ends change their load.
void ExpertRouter::move_along_path(std::int32_t from_rank, std::int32_t to_rank,
                                   std::span<std::int32_t> expert_to_rank) {
  --activated_[index(from_rank)];
  ++activated_[index(to_rank)];
  for (std::int32_t rank = to_rank; rank != from_rank;) {
    const std::int32_t expert = reached_by_expert_[index(rank)];
    const std::int32_t previous = expert_to_rank[index(expert)];
    movable_word(previous, expert) &= ~bit_of(expert);
    movable_word(rank, expert) |= bit_of(expert);
    expert_to_rank[index(expert)] = rank;
    rank = previous;
  }
}

}  // namespace metro
