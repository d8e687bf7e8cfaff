// Which rank serves which expert, chosen by one team: the greedy pass of `metro` and `metro-scarce` and the repair of
// `exact`. Twin of src/routing/expert_router.cpp; the order of every choice is that of docs/routing.md.
#pragma once

#include "kernels/portable/routing_team.hpp"
#include "kernels/routing.hpp"

#include <cstdint>

namespace metro::portable {

// From here on the hosts of an expert are searched by the whole team; below, one thread is done before others could
// have joined.
inline constexpr std::int32_t many_hosts = 32;

KOKKOS_INLINE_FUNCTION std::uint64_t bit_of(std::int32_t position) {
  return std::uint64_t{1} << (position % 64);
}

// What the repair needs besides, in team scratch.
struct RepairScratch {
  std::uint64_t* movable;    // [num_ranks, num_expert_words] bit e: e is here and has other hosts
  std::uint64_t* reached;    // [num_mask_words] bit r: rank r was reached
  std::int32_t* queue;       // [num_ranks] ranks in the order they were reached
  std::int32_t* reached_by;  // [num_ranks] the expert whose move reaches the rank
};

// An assignment under construction, in team scratch.
struct Choice {
  std::int32_t* expert_to_rank;  // [num_experts] -1: no rows
  std::int32_t* load;            // [num_ranks] experts per rank
  std::int32_t* order;           // [num_experts] experts to serve by choice, in order
  std::int32_t num_ordered;
};

// Each expert of choice.order in turn to its host with the smallest load, the lowest of several.
template <class Member>
KOKKOS_FUNCTION void choose_hosts(const RoutingTeam<Member>& team, const RoutingTablePointers& tables,
                                  const Choice& choice) {
  for (std::int32_t i = 0; i < choice.num_ordered; ++i) {
    const std::int32_t expert = choice.order[i];
    const std::int32_t* hosts = tables.hosts + tables.host_begin[expert];
    const std::int32_t num_hosts = tables.host_begin[expert + 1] - tables.host_begin[expert];
    // Load and rank as one number: the smallest is the lowest rank among those with the smallest load.
    std::uint64_t best = ~std::uint64_t{0};
    const auto take = [&](std::int32_t idx) {
      const auto code =
          static_cast<std::uint64_t>(choice.load[hosts[idx]]) << 32 | static_cast<std::uint32_t>(hosts[idx]);
      best = code < best ? code : best;
    };
    if (num_hosts >= many_hosts) {
      team.barrier();  // the load of the expert before
      team.for_each(num_hosts, take);
      best = team.min(best);
    } else if (team.rank() == 0) {
      for (std::int32_t idx = 0; idx < num_hosts; ++idx) {
        take(idx);
      }
    }
    if (team.rank() == 0) {
      const auto rank = static_cast<std::int32_t>(best & 0xffffffffU);
      choice.expert_to_rank[expert] = rank;
      ++choice.load[rank];
    }
  }
  team.barrier();
}

// One thread's search for the optimum. Its steps depend on one another, and there are few.
class Repair {
 public:
  KOKKOS_FUNCTION Repair(const RoutingTablePointers& tables, const Choice& choice, const RepairScratch& scratch)
      : tables_(tables), choice_(choice), scratch_(scratch), num_expert_words_((tables.num_experts + 63) / 64) {}

  // Lowers every rank that carries `lambda` by one, then those of the next level, down to lower_bound or until one of
  // them cannot be lowered.
  KOKKOS_FUNCTION void lower_all(std::int32_t lambda, std::int32_t lower_bound) {
    for (lambda_ = lambda; lambda_ > lower_bound; --lambda_) {
      for (std::int32_t rank = 0; rank < tables_.num_ranks; ++rank) {
        if (choice_.load[rank] == lambda_ && !lower_one(rank)) {
          return;
        }
      }
    }
  }

 private:
  KOKKOS_FUNCTION std::uint64_t& movable_word(std::int32_t rank, std::int32_t expert) const {
    return scratch_.movable[rank * num_expert_words_ + expert / 64];
  }

  // Searches breadth-first for a rank with at most lambda_ - 2 to which from_rank can hand down one expert.
  KOKKOS_FUNCTION bool lower_one(std::int32_t from_rank) {
    for (std::int32_t word_idx = 0; word_idx < tables_.num_mask_words; ++word_idx) {
      scratch_.reached[word_idx] = 0;
    }
    scratch_.reached[from_rank / 64] = bit_of(from_rank);
    scratch_.queue[0] = from_rank;
    num_reached_ = 1;
    for (std::int32_t queue_idx = 0; queue_idx < num_reached_; ++queue_idx) {
      for (std::int32_t word_idx = 0; word_idx < num_expert_words_; ++word_idx) {
        const std::int32_t first_expert = word_idx * 64;
        for (std::uint64_t bits = movable_word(scratch_.queue[queue_idx], first_expert); bits != 0; bits &= bits - 1) {
          const std::int32_t to_rank = reach_hosts_of(first_expert + lowest_bit(bits));
          if (to_rank >= 0) {
            move_along_path(from_rank, to_rank);
            return true;
          }
        }
      }
    }
    return false;
  }

  // Queues the hosts of `expert` that were not reached before. Returns the first with at most lambda_ - 2, or -1.
  KOKKOS_FUNCTION std::int32_t reach_hosts_of(std::int32_t expert) {
    const std::uint64_t* host_mask = tables_.host_masks + expert * tables_.num_mask_words;
    for (std::int32_t word_idx = 0; word_idx < tables_.num_mask_words; ++word_idx) {
      std::uint64_t fresh = host_mask[word_idx] & ~scratch_.reached[word_idx];
      scratch_.reached[word_idx] |= fresh;
      for (; fresh != 0; fresh &= fresh - 1) {
        const std::int32_t rank = word_idx * 64 + lowest_bit(fresh);
        scratch_.reached_by[rank] = expert;
        if (choice_.load[rank] <= lambda_ - 2) {
          return rank;
        }
        scratch_.queue[num_reached_++] = rank;
      }
    }
    return -1;
  }

  // Every expert on the path goes one rank further. Only the ends change their load.
  KOKKOS_FUNCTION void move_along_path(std::int32_t from_rank, std::int32_t to_rank) {
    --choice_.load[from_rank];
    ++choice_.load[to_rank];
    for (std::int32_t rank = to_rank; rank != from_rank;) {
      const std::int32_t expert = scratch_.reached_by[rank];
      const std::int32_t previous = choice_.expert_to_rank[expert];
      movable_word(previous, expert) &= ~bit_of(expert);
      movable_word(rank, expert) |= bit_of(expert);
      choice_.expert_to_rank[expert] = rank;
      rank = previous;
    }
  }

  const RoutingTablePointers& tables_;
  const Choice& choice_;
  const RepairScratch& scratch_;
  std::int32_t num_expert_words_;
  std::int32_t num_reached_ = 0;
  std::int32_t lambda_ = 0;
};

// Makes an assignment whose experts with several hosts are choice.order optimal.
template <class Member>
KOKKOS_FUNCTION void repair(const RoutingTeam<Member>& team, const RoutingTablePointers& tables, const Choice& choice,
                            const RepairScratch& scratch) {
  std::int32_t most = 0;
  std::int32_t own_sum = 0;
  team.for_each(tables.num_ranks, [&](std::int32_t rank) {
    most = choice.load[rank] > most ? choice.load[rank] : most;
    own_sum += choice.load[rank];
  });
  const std::int32_t lambda = team.max(most);
  const std::int32_t num_active = team.sum(own_sum);
  const std::int32_t lower_bound = (num_active + tables.num_ranks - 1) / tables.num_ranks;
  if (lambda == lower_bound) {
    return;
  }
  const std::int32_t num_expert_words = (tables.num_experts + 63) / 64;
  team.for_each(tables.num_ranks * num_expert_words, [&](std::int32_t i) { scratch.movable[i] = 0; });
  team.barrier();
  team.for_each(choice.num_ordered, [&](std::int32_t i) {
    const std::int32_t expert = choice.order[i];
    const std::int32_t rank = choice.expert_to_rank[expert];
    Kokkos::atomic_or(&scratch.movable[rank * num_expert_words + expert / 64], bit_of(expert));
  });
  team.barrier();
  if (team.rank() == 0) {
    Repair(tables, choice, scratch).lower_all(lambda, lower_bound);
  }
  team.barrier();
}

}  // namespace metro::portable
