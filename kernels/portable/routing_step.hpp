// The kernel behind kernels/routing.hpp, for one team of any execution space:
//   rows per expert -> rank of every expert -> slots and loads -> what this rank serves -> its work -> own results.
// Nothing in it depends on the number of threads: sums are of integers, lists are in order, and what has to happen one
// after the other is done by one thread (routing_choice.hpp).
#pragma once

#include "kernels/portable/routing_choice.hpp"
#include "kernels/portable/routing_team.hpp"
#include "kernels/routing.hpp"

#include <cstddef>
#include <cstdint>

namespace metro::portable {

// Team scratch of the step. Made over memory, or over none to find its size.
struct RoutingScratch {
  RepairScratch repair{};  // of `exact` only
  std::int32_t* rows_of_expert = nullptr;
  std::int32_t* expert_to_rank = nullptr;
  std::int32_t* expert_to_slot = nullptr;  // of expert-granular policies
  std::int32_t* order = nullptr;
  std::int32_t* load = nullptr;
  std::int32_t* totals = nullptr;    // [max(num_ranks, slots_per_rank)] of ChunkedCounts
  std::int32_t* counters = nullptr;  // [num_counters] of ChunkedCounts
  std::int64_t num_bytes = 0;

  KOKKOS_FUNCTION RoutingScratch(std::byte* memory, StepPolicy policy, std::int64_t num_experts, std::int64_t num_ranks,
                                 std::int64_t slots_per_rank, std::int64_t num_counters) {
    if (policy == StepPolicy::exact) {  // the 64-bit words first, for their alignment
      take(memory, repair.movable, num_ranks * ((num_experts + 63) / 64));
      take(memory, repair.reached, (num_ranks + 63) / 64);
      take(memory, repair.queue, num_ranks);
      take(memory, repair.reached_by, num_ranks);
    }
    take(memory, rows_of_expert, num_experts);
    take(memory, expert_to_rank, num_experts);
    take(memory, expert_to_slot, num_experts);
    take(memory, order, num_experts);
    take(memory, load, num_ranks);
    take(memory, totals, num_ranks > slots_per_rank ? num_ranks : slots_per_rank);
    take(memory, counters, num_counters);
  }

 private:
  template <class T>
  KOKKOS_FUNCTION void take(std::byte* memory, T*& part, std::int64_t size) {
    if (memory != nullptr) {
      part = reinterpret_cast<T*>(memory + num_bytes);
    }
    num_bytes += size * static_cast<std::int64_t>(sizeof(T));
  }
};

// Every bit of the result depends on every bit of `value`.
KOKKOS_INLINE_FUNCTION std::uint64_t scrambled(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

template <class Space>
struct RoutingKernel {
  using Member = typename Kokkos::TeamPolicy<Space>::member_type;
  using Team = RoutingTeam<Member>;

  StepPolicy policy;
  RoutingTablePointers tables;
  GatheredRows rows;
  RoutingResult out;
  int scratch_level;
  std::int64_t scratch_bytes;
  std::int64_t num_counters;

  KOKKOS_FUNCTION void operator()(const Member& member) const {
    if (rows.row_begin == nullptr) {
      return;  // a launch that only has its scratch allocated
    }
    auto* memory =
        static_cast<std::byte*>(member.team_scratch(scratch_level).get_shmem(static_cast<int>(scratch_bytes)));
    if (memory == nullptr) {
      Kokkos::abort("no team scratch for the routing step");
    }
    const Team team(member);
    const RoutingScratch scratch(memory, policy, tables.num_experts, tables.num_ranks, tables.slots_per_rank,
                                 num_counters);
    clear(team, scratch);
    if (policy == StepPolicy::even) {
      spread(team, scratch);
    } else {
      count_rows(team, scratch);
      choose_ranks(team, scratch);
    }
    account(team, scratch);
    list_work(team, scratch, list_served(team));
    list_own_results(team, scratch);
    sum_up(team, scratch);
  }

 private:
  KOKKOS_FUNCTION std::int32_t num_assignments() const { return static_cast<std::int32_t>(rows.num_rows * rows.top_k); }
  KOKKOS_FUNCTION std::int32_t counters() const { return static_cast<std::int32_t>(num_counters); }

  // -1: padding.
  KOKKOS_FUNCTION std::int32_t expert_of(std::int32_t assignment) const {
    const std::int32_t expert = rows.expert_ids[assignment];
    return expert >= 0 && expert < tables.num_experts ? expert : -1;
  }

  KOKKOS_FUNCTION std::int32_t num_replicas(std::int32_t expert) const {
    return tables.replica_begin[expert + 1] - tables.replica_begin[expert];
  }

  // even: rows for one replica of an expert, the n-th row going to replica n mod num_replicas.
  KOKKOS_FUNCTION std::int32_t rows_of_replica(std::int32_t rows_of_expert, std::int32_t num_of_expert,
                                               std::int32_t replica) const {
    return (rows_of_expert - replica + num_of_expert - 1) / num_of_expert;
  }

  KOKKOS_FUNCTION void clear(const Team& team, const RoutingScratch& scratch) const {
    team.for_each(tables.num_experts, [&](std::int32_t expert) {
      scratch.rows_of_expert[expert] = 0;
      scratch.expert_to_rank[expert] = -1;
      scratch.expert_to_slot[expert] = -1;
    });
    team.for_each(tables.num_ranks, [&](std::int32_t rank) {
      scratch.load[rank] = 0;
      out.served_by_rank[rank] = 0;
    });
    team.barrier();
  }

  // even: rows per expert, and the n-th row of an expert to its replica n mod num_replicas.
  KOKKOS_FUNCTION void spread(const Team& team, const RoutingScratch& scratch) const {
    const ChunkedCounts chunked(team, scratch.counters, counters(), tables.num_experts, num_assignments());
    const auto key = [&](std::int32_t i) { return expert_of(i); };
    count_by_key(team, chunked, key, scratch.rows_of_expert);
    visit_occurrences(team, chunked, key, [&](std::int32_t i, std::int32_t expert, std::int32_t nth) {
      out.slots[i] = expert >= 0 ? tables.replicas[tables.replica_begin[expert] + nth % num_replicas(expert)] : -1;
    });
  }

  KOKKOS_FUNCTION void count_rows(const Team& team, const RoutingScratch& scratch) const {
    team.for_each(num_assignments(), [&](std::int32_t i) {
      const std::int32_t expert = expert_of(i);
      if (expert >= 0) {
        Kokkos::atomic_add(&scratch.rows_of_expert[expert], 1);
      }
    });
    team.barrier();
  }

  // The expert-granular policies: a rank for every expert with rows.
  KOKKOS_FUNCTION void choose_ranks(const Team& team, const RoutingScratch& scratch) const {
    const bool in_id_order = policy == StepPolicy::metro;
    // In ascending number of hosts those without a choice come first: where they go depends on nothing.
    const std::int32_t num_without_choice = in_id_order ? 0 : tables.num_single_host;
    team.for_each(num_without_choice, [&](std::int32_t i) {
      const std::int32_t expert = tables.by_scarcity[i];
      if (scratch.rows_of_expert[expert] > 0) {
        const std::int32_t rank = tables.hosts[tables.host_begin[expert]];
        scratch.expert_to_rank[expert] = rank;
        Kokkos::atomic_add(&scratch.load[rank], 1);
      }
    });
    const auto nth = [&](std::int32_t i) { return in_id_order ? i : tables.by_scarcity[num_without_choice + i]; };
    Choice choice{scratch.expert_to_rank, scratch.load, scratch.order, 0};
    choice.num_ordered = list_in_order(
        team, tables.num_experts - num_without_choice,
        [&](std::int32_t i) { return scratch.rows_of_expert[nth(i)] > 0; },
        [&](std::int32_t position, std::int32_t i) { scratch.order[position] = nth(i); });
    choose_hosts(team, tables, choice);
    if (policy == StepPolicy::exact) {
      repair(team, tables, choice, scratch.repair);
    }
  }

  // Replicas in use and rows per rank, and the slot of every assignment where it is that of its expert.
  KOKKOS_FUNCTION void account(const Team& team, const RoutingScratch& scratch) const {
    team.for_each(tables.num_experts, [&](std::int32_t expert) {
      const std::int32_t num_rows = scratch.rows_of_expert[expert];
      const std::int32_t* replicas = tables.replicas + tables.replica_begin[expert];
      if (policy == StepPolicy::even) {
        const std::int32_t count = num_replicas(expert);
        for (std::int32_t replica = 0; replica < count && replica < num_rows; ++replica) {
          const std::int32_t rank = replicas[replica] / tables.slots_per_rank;
          Kokkos::atomic_add(&scratch.load[rank], 1);
          Kokkos::atomic_add(&out.served_by_rank[rank], rows_of_replica(num_rows, count, replica));
        }
      } else if (num_rows > 0) {
        const std::int32_t rank = scratch.expert_to_rank[expert];
        Kokkos::atomic_add(&out.served_by_rank[rank], num_rows);
        while (*replicas / tables.slots_per_rank != rank) {
          ++replicas;
        }
        scratch.expert_to_slot[expert] = *replicas;
      }
    });
    team.barrier();
    if (policy != StepPolicy::even) {
      team.for_each(num_assignments(), [&](std::int32_t i) {
        const std::int32_t expert = expert_of(i);
        out.slots[i] = expert >= 0 ? scratch.expert_to_slot[expert] : -1;
      });
      team.barrier();
    }
  }

  // Of the slots of this rank; -1: served elsewhere or not at all.
  KOKKOS_FUNCTION std::int32_t own_slot_of(std::int32_t assignment) const {
    const std::int32_t slot = out.slots[assignment];
    const std::int32_t own_slot = slot - tables.rank * tables.slots_per_rank;
    return slot >= 0 && own_slot >= 0 && own_slot < tables.slots_per_rank ? own_slot : -1;
  }

  // The assignments that this rank serves, in row order, and where those of every owner begin. Returns how many.
  KOKKOS_FUNCTION std::int32_t list_served(const Team& team) const {
    const std::int32_t num_served = list_in_order(
        team, num_assignments(), [&](std::int32_t i) { return own_slot_of(i) >= 0; },
        [&](std::int32_t position, std::int32_t i) { out.served[position] = i; });
    team.for_each(tables.num_ranks + 1, [&](std::int32_t owner) {
      const std::int64_t first = rows.row_begin[owner] * rows.top_k;
      std::int32_t begin = 0;
      for (std::int32_t end = num_served; begin < end;) {
        const std::int32_t middle = begin + (end - begin) / 2;
        if (out.served[middle] < first) {
          begin = middle + 1;
        } else {
          end = middle;
        }
      }
      out.sent_begin[owner] = begin;
    });
    return num_served;
  }

  // The same grouped by own slot, and where each of them went.
  KOKKOS_FUNCTION void list_work(const Team& team, const RoutingScratch& scratch, std::int32_t num_served) const {
    const ChunkedCounts chunked(team, scratch.counters, counters(), tables.slots_per_rank, num_served);
    const auto key = [&](std::int32_t i) { return own_slot_of(out.served[i]); };
    count_by_key(team, chunked, key, scratch.totals);
    prefix_sums(
        team, tables.slots_per_rank, [&](std::int32_t slot) { return scratch.totals[slot]; }, out.work_begin);
    visit_occurrences(team, chunked, key, [&](std::int32_t i, std::int32_t slot, std::int32_t nth) {
      const std::int32_t row = out.work_begin[slot] + nth;
      out.work[row] = out.served[i];
      out.sent_rows[i] = row;
    });
  }

  KOKKOS_FUNCTION void list_own_results(const Team& team, const RoutingScratch& scratch) const {
    const std::int64_t first = rows.row_begin[tables.rank] * rows.top_k;
    const std::int64_t num_owned = rows.row_begin[tables.rank + 1] * rows.top_k - first;
    const auto server_of = [&](std::int32_t i) {
      const std::int32_t slot = out.slots[first + i];
      return slot >= 0 ? slot / tables.slots_per_rank : -1;
    };
    const ChunkedCounts chunked(team, scratch.counters, counters(), tables.num_ranks,
                                static_cast<std::int32_t>(num_owned));
    count_by_key(team, chunked, server_of, scratch.totals);
    prefix_sums(
        team, tables.num_ranks, [&](std::int32_t server) { return scratch.totals[server]; }, out.returned_begin);
    visit_occurrences(team, chunked, server_of, [&](std::int32_t i, std::int32_t server, std::int32_t nth) {
      out.returned_row[i] = server >= 0 ? out.returned_begin[server] + nth : -1;
    });
  }

  // What is left to copy out, the largest load and the checksum.
  KOKKOS_FUNCTION void sum_up(const Team& team, const RoutingScratch& scratch) const {
    team.for_each(tables.num_experts, [&](std::int32_t expert) {
      out.rows_of_expert[expert] = scratch.rows_of_expert[expert];
      out.expert_to_rank[expert] = scratch.expert_to_rank[expert];
    });
    std::int32_t most = 0;
    team.for_each(tables.num_ranks, [&](std::int32_t rank) {
      const std::int32_t load = scratch.load[rank];
      out.activated[rank] = load;
      most = load > most ? load : most;
    });
    std::uint64_t own_sum = 0;
    team.for_each(num_assignments(), [&](std::int32_t i) {
      const auto id = static_cast<std::uint32_t>(rows.expert_ids[i]);
      const auto slot = static_cast<std::uint32_t>(out.slots[i]);
      const std::uint64_t place_of_i = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15U;
      own_sum += scrambled((static_cast<std::uint64_t>(id) << 32 | slot) + place_of_i);
    });
    const std::int32_t lambda = team.max(most);
    const std::uint64_t checksum = team.sum(own_sum);
    if (team.rank() == 0) {
      *out.lambda = lambda;
      *out.checksum = checksum;
    }
  }
};

}  // namespace metro::portable
