#include "routing/token_policies.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "routing/mixed_bits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

bool is_expert(const ReplicaMap& map, std::int32_t id) {
  return id >= 0 && id < map.num_experts();
}

// Sets the slot of every assignment to choose(position, expert), and of what is no expert to -1.
void choose_slots(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::span<std::int32_t> slots,
                  auto choose) {
  for (std::size_t position = 0; position < expert_ids.size(); ++position) {
    const std::int32_t expert = expert_ids[position];
    slots[position] = is_expert(map, expert) ? choose(position, expert) : -1;
  }
}

void require_rows(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::span<std::int32_t> slots) {
  METRO_REQUIRE(top_k >= 1 && std::ssize(expert_ids) % top_k == 0, fmt::format("{} ids", expert_ids.size()));
  METRO_REQUIRE(slots.size() == expert_ids.size(), fmt::format("{} slots for {}", slots.size(), expert_ids.size()));
}

void require_sources(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                     const RowSources& sources) {
  METRO_REQUIRE(std::ssize(sources.row_to_rank) * top_k == std::ssize(expert_ids),
                fmt::format("{} source ranks for {} ids", sources.row_to_rank.size(), expert_ids.size()));
  METRO_REQUIRE(std::ssize(sources.rank_to_node) == map.num_ranks(),
                fmt::format("{} nodes of {} ranks", sources.rank_to_node.size(), map.num_ranks()));
  for (const std::int32_t rank : sources.row_to_rank) {
    METRO_REQUIRE(rank >= 0 && rank < map.num_ranks(), fmt::format("a row of rank {}", rank));
  }
}

// The replica on `rank`; if there is none, replica choose(number of candidates) of those on its node; or of all.
std::int32_t near_replica(const ReplicaMap& map, std::int32_t expert, std::int32_t rank,
                          std::span<const std::int32_t> rank_to_node, auto choose) {
  const std::int32_t own = map.slot_on_rank(expert, rank);
  if (own >= 0) {
    return own;
  }
  const auto is_near = [&](std::int32_t slot) {
    return rank_to_node[at(map.rank_of_slot(slot))] == rank_to_node[at(rank)];
  };
  const auto replicas = map.slots_of(expert);
  const auto num_near = static_cast<std::size_t>(std::count_if(replicas.begin(), replicas.end(), is_near));
  if (num_near == 0) {
    return replicas[choose(replicas.size())];
  }
  std::size_t left = choose(num_near);
  for (const std::int32_t slot : replicas) {
    if (is_near(slot) && left-- == 0) {
      return slot;
    }
  }
  return -1;  // not reached: left < num_near
}

}  // namespace

void route_vllm_modulo(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::span<std::int32_t> slots) {
  require_rows(expert_ids, 1, slots);
  choose_slots(map, expert_ids, slots, [&](std::size_t position, std::int32_t expert) {
    const auto replicas = map.slots_of(expert);
    return replicas[position % replicas.size()];
  });
}

void route_vllm_knuth(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                      std::span<std::int32_t> slots) {
  require_rows(expert_ids, top_k, slots);
  choose_slots(map, expert_ids, slots, [&](std::size_t position, std::int32_t expert) {
    const auto replicas = map.slots_of(expert);
    const auto hash = static_cast<std::uint32_t>(position / at(top_k) * 2654435769U);
    return replicas[hash % replicas.size()];
  });
}

std::uint64_t random_routing_key(std::uint64_t seed, std::int64_t step, std::int64_t layer) {
  return mixed_bits(mixed_bits(mixed_bits(seed) ^ static_cast<std::uint64_t>(step)) ^
                    static_cast<std::uint64_t>(layer));
}

void route_vllm_random(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                       std::uint64_t key, std::uint64_t first_row, std::span<std::int32_t> slots) {
  require_rows(expert_ids, top_k, slots);
  const std::size_t num_rows = expert_ids.size() / at(top_k);
  for (std::size_t row = 0; row < num_rows; ++row) {
    const std::uint64_t row_key = mixed_bits(key ^ (first_row + row));
    for (std::size_t column = 0; column < at(top_k); ++column) {
      const std::size_t position = row * at(top_k) + column;
      const std::int32_t expert = expert_ids[position];
      slots[position] = -1;
      if (is_expert(map, expert)) {
        const auto replicas = map.slots_of(expert);
        slots[position] = replicas[below(replicas.size(), mixed_bits(row_key ^ column))];
      }
    }
  }
}

void route_static(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                  const RowSources& sources, std::span<std::int32_t> slots) {
  require_rows(expert_ids, top_k, slots);
  require_sources(map, expert_ids, top_k, sources);
  choose_slots(map, expert_ids, slots, [&](std::size_t position, std::int32_t expert) {
    const std::int32_t rank = sources.row_to_rank[position / at(top_k)];
    return near_replica(map, expert, rank, sources.rank_to_node, [&](std::size_t num_candidates) {
      const std::uint64_t hash =
          mixed_bits(mixed_bits(static_cast<std::uint64_t>(rank)) ^ static_cast<std::uint64_t>(expert));
      return hash % num_candidates;
    });
  });
}

void route_local(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                 const RowSources& sources, std::int64_t start, std::span<std::int32_t> occurrences,
                 std::span<std::int32_t> slots) {
  require_rows(expert_ids, top_k, slots);
  require_sources(map, expert_ids, top_k, sources);
  METRO_REQUIRE(start >= 0, fmt::format("start = {}", start));
  METRO_REQUIRE(std::ssize(occurrences) == map.num_experts(), fmt::format("{} occurrences", occurrences.size()));
  std::fill(occurrences.begin(), occurrences.end(), 0);
  choose_slots(map, expert_ids, slots, [&](std::size_t position, std::int32_t expert) {
    const auto turn = at(start + occurrences[at(expert)]++);
    return near_replica(map, expert, sources.row_to_rank[position / at(top_k)], sources.rank_to_node,
                        [&](std::size_t num_candidates) { return turn % num_candidates; });
  });
}

}  // namespace metro
