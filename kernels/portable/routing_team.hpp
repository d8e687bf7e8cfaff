// What the threads of one team do together in the routing step: sums, prefix sums, lists in order and counting by key.
// All of it on integers and independent of the number of threads. Every function below is called by the whole team,
// sees what the team wrote before a barrier, and ends with one.
#pragma once

#include "kernels/portable/kokkos_compat.hpp"

#include <cstdint>

namespace metro::portable {

template <class Member>
class RoutingTeam {
 public:
  KOKKOS_FUNCTION explicit RoutingTeam(const Member& member) : member_(member) {}

  KOKKOS_FUNCTION std::int32_t rank() const { return member_.team_rank(); }
  KOKKOS_FUNCTION std::int32_t size() const { return member_.team_size(); }
  KOKKOS_FUNCTION void barrier() const { member_.team_barrier(); }

  // work(i) for i in 0..num_items-1 in any order. No barrier.
  template <class F>
  KOKKOS_FUNCTION void for_each(std::int32_t num_items, const F& work) const {
    for (std::int32_t i = rank(); i < num_items; i += size()) {
      work(i);
    }
  }

  template <class T>
  KOKKOS_FUNCTION T max(T value) const {
    member_.team_reduce(Kokkos::Max<T>(value));
    return value;
  }
  template <class T>
  KOKKOS_FUNCTION T min(T value) const {
    member_.team_reduce(Kokkos::Min<T>(value));
    return value;
  }
  template <class T>
  KOKKOS_FUNCTION T sum(T value) const {
    member_.team_reduce(Kokkos::Sum<T>(value));
    return value;
  }
  // Sum of the values of the threads before this one.
  KOKKOS_FUNCTION std::int32_t sum_before(std::int32_t value) const { return member_.team_scan(value); }

  // This thread's part of num_items items when each has one piece, in order.
  struct Block {
    std::int32_t begin, end;
  };
  KOKKOS_FUNCTION Block block(std::int32_t num_items) const {
    const auto share = [&](std::int64_t thread) { return static_cast<std::int32_t>(num_items * thread / size()); };
    return {share(rank()), share(rank() + 1)};
  }

 private:
  const Member& member_;
};

// sums[i] = value(0) + .. + value(i - 1) for i in 0..num_items.
template <class Member, class F>
KOKKOS_FUNCTION void prefix_sums(const RoutingTeam<Member>& team, std::int32_t num_items, const F& value,
                                 std::int32_t* sums) {
  const auto block = team.block(num_items);
  std::int32_t own = 0;
  for (std::int32_t i = block.begin; i < block.end; ++i) {
    own += value(i);
  }
  std::int32_t sum = team.sum_before(own);
  for (std::int32_t i = block.begin; i < block.end; ++i) {
    sums[i] = sum;
    sum += value(i);
  }
  if (team.rank() == team.size() - 1) {
    sums[num_items] = sum;
  }
  team.barrier();
}

// write(position, i) for the i in 0..num_items-1 with keep(i), in order. Returns how many.
template <class Member, class Keep, class Write>
KOKKOS_FUNCTION std::int32_t list_in_order(const RoutingTeam<Member>& team, std::int32_t num_items, const Keep& keep,
                                           const Write& write) {
  const auto block = team.block(num_items);
  std::int32_t own = 0;
  for (std::int32_t i = block.begin; i < block.end; ++i) {
    own += keep(i) ? 1 : 0;
  }
  std::int32_t position = team.sum_before(own);
  for (std::int32_t i = block.begin; i < block.end; ++i) {
    if (keep(i)) {
      write(position++, i);
    }
  }
  const std::int32_t total = team.sum(own);
  team.barrier();
  return total;
}

// Items counted by key in chunks of consecutive items, one thread a chunk: what a thread needs to know which occurrence
// of its key every item is, without waiting for the items before.
struct ChunkedCounts {
  std::int32_t* counts;  // [num_chunks, num_keys] scratch
  std::int32_t num_keys;
  std::int32_t num_items;
  std::int32_t num_chunks;

  // As many chunks as there are threads and room for counters.
  template <class Member>
  KOKKOS_FUNCTION ChunkedCounts(const RoutingTeam<Member>& team, std::int32_t* counters, std::int32_t num_counters,
                                std::int32_t keys, std::int32_t items)
      : counts(counters),
        num_keys(keys),
        num_items(items),
        num_chunks(num_counters / keys < team.size() ? num_counters / keys : team.size()) {}

  KOKKOS_FUNCTION std::int32_t begin(std::int32_t chunk) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(num_items) * chunk / num_chunks);
  }
};

// totals[key] = number of items with key(i) == key; items with a negative key do not count.
template <class Member, class Key>
KOKKOS_FUNCTION void count_by_key(const RoutingTeam<Member>& team, const ChunkedCounts& chunked, const Key& key,
                                  std::int32_t* totals) {
  team.for_each(chunked.num_chunks * chunked.num_keys, [&](std::int32_t i) { chunked.counts[i] = 0; });
  team.barrier();
  team.for_each(chunked.num_chunks, [&](std::int32_t chunk) {
    std::int32_t* counts = chunked.counts + chunk * chunked.num_keys;
    for (std::int32_t i = chunked.begin(chunk); i < chunked.begin(chunk + 1); ++i) {
      const std::int32_t item_key = key(i);
      if (item_key >= 0) {
        ++counts[item_key];
      }
    }
  });
  team.barrier();
  team.for_each(chunked.num_keys, [&](std::int32_t item_key) {
    std::int32_t sum = 0;
    for (std::int32_t chunk = 0; chunk < chunked.num_chunks; ++chunk) {
      std::int32_t& count = chunked.counts[chunk * chunked.num_keys + item_key];
      const std::int32_t in_chunk = count;
      count = sum;
      sum += in_chunk;
    }
    totals[item_key] = sum;
  });
  team.barrier();
}

// After count_by_key(), once: visit(i, key(i), n) for every item, the n-th (from 0) of its key; n = 0 without a key.
template <class Member, class Key, class Visit>
KOKKOS_FUNCTION void visit_occurrences(const RoutingTeam<Member>& team, const ChunkedCounts& chunked, const Key& key,
                                       const Visit& visit) {
  team.for_each(chunked.num_chunks, [&](std::int32_t chunk) {
    std::int32_t* counts = chunked.counts + chunk * chunked.num_keys;
    for (std::int32_t i = chunked.begin(chunk); i < chunked.begin(chunk + 1); ++i) {
      const std::int32_t item_key = key(i);
      visit(i, item_key, item_key >= 0 ? counts[item_key]++ : 0);
    }
  });
  team.barrier();
}

}  // namespace metro::portable
