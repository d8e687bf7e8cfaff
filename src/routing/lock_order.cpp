#include "routing/lock_order.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "routing/mixed_bits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace metro {

void route_in_lock_order(const ReplicaMap& map, std::span<const std::int32_t> counts, std::uint64_t seed,
                         std::span<std::int32_t> expert_to_rank) {
  METRO_REQUIRE(std::ssize(counts) == map.num_experts(), fmt::format("{} counts", counts.size()));
  METRO_REQUIRE(std::ssize(expert_to_rank) == map.num_experts(), fmt::format("{} experts", expert_to_rank.size()));
  std::vector<std::int32_t> order;
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    if (counts[at(expert)] > 0) {
      order.push_back(expert);
    }
  }
  const std::uint64_t key = mixed_bits(seed);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[below(left, mixed_bits(key ^ left))]);
  }

  std::fill(expert_to_rank.begin(), expert_to_rank.end(), -1);
  std::vector<std::int32_t> activated(at(map.num_ranks()), 0);
  for (const std::int32_t expert : order) {
    const auto hosts = map.hosts_of(expert);
    const std::int32_t rank = *std::min_element(hosts.begin(), hosts.end(), [&](std::int32_t a, std::int32_t b) {
      return activated[at(a)] < activated[at(b)];
    });
    expert_to_rank[at(expert)] = rank;
    ++activated[at(rank)];
  }
}

}  // namespace metro
