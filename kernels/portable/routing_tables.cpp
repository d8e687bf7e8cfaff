// The tables of the routing step: counting sorts on the host, then one copy.
#include "kernels/routing.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace metro {

namespace {

using Numbers = std::vector<std::int32_t>;

// values[begin[e]] .. values[begin[e + 1] - 1] belong to expert e.
struct Lists {
  Numbers begin, values;

  std::int32_t size_of(std::int32_t expert) const { return begin[at(expert) + 1] - begin[at(expert)]; }
};

// Slots of every expert, ascending, by a counting sort.
Lists replicas_of(std::span<const std::int32_t> slot_to_expert, std::int64_t num_experts) {
  Lists lists{Numbers(at(num_experts) + 1, 0), {}};
  for (const std::int32_t expert : slot_to_expert) {
    METRO_REQUIRE(expert >= -1 && expert < num_experts, "expert " + std::to_string(expert));
    if (expert >= 0) {
      ++lists.begin[at(expert) + 1];
    }
  }
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    METRO_REQUIRE(lists.begin[at(expert) + 1] > 0, "expert " + std::to_string(expert) + " has no slot");
  }
  std::partial_sum(lists.begin.begin(), lists.begin.end(), lists.begin.begin());
  lists.values.resize(at(lists.begin.back()));
  Numbers next(lists.begin.begin(), lists.begin.end() - 1);
  for (std::int64_t slot = 0; slot < std::ssize(slot_to_expert); ++slot) {
    if (slot_to_expert[at(slot)] >= 0) {
      lists.values[at(next[at(slot_to_expert[at(slot)])]++)] = static_cast<std::int32_t>(slot);
    }
  }
  return lists;
}

// Ranks of those slots, each once.
Lists hosts_of(const Lists& replicas, std::int64_t slots_per_rank) {
  Lists hosts{{0}, {}};
  for (std::size_t expert = 0; expert + 1 < replicas.begin.size(); ++expert) {
    for (std::int32_t idx = replicas.begin[expert]; idx < replicas.begin[expert + 1]; ++idx) {
      const auto rank = static_cast<std::int32_t>(replicas.values[at(idx)] / slots_per_rank);
      if (std::ssize(hosts.values) == hosts.begin.back() || hosts.values.back() != rank) {
        hosts.values.push_back(rank);
      }
    }
    hosts.begin.push_back(static_cast<std::int32_t>(hosts.values.size()));
  }
  return hosts;
}

// The same ranks as bits. [num_experts, num_mask_words]
std::vector<std::uint64_t> masks_of(const Lists& hosts, std::int64_t num_mask_words) {
  const std::int64_t num_experts = std::ssize(hosts.begin) - 1;
  std::vector<std::uint64_t> masks(at(num_experts * num_mask_words), 0);
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    for (std::int32_t idx = hosts.begin[at(expert)]; idx < hosts.begin[at(expert) + 1]; ++idx) {
      const std::int32_t host = hosts.values[at(idx)];
      masks[at(expert * num_mask_words + host / 64)] |= std::uint64_t{1} << (host % 64);
    }
  }
  return masks;
}

}  // namespace

RoutingTables::RoutingTables(std::span<const std::int32_t> slot_to_expert, std::int64_t num_experts,
                             std::int64_t num_ranks, std::int64_t rank) {
  METRO_REQUIRE(
      num_experts >= 1 && num_ranks >= 1 && rank >= 0 && rank < num_ranks,
      std::to_string(num_experts) + " experts, rank " + std::to_string(rank) + " of " + std::to_string(num_ranks));
  METRO_REQUIRE(std::ssize(slot_to_expert) % num_ranks == 0 &&
                    std::ssize(slot_to_expert) <= std::numeric_limits<std::int32_t>::max(),
                std::to_string(slot_to_expert.size()) + " slots");
  const std::int64_t slots_per_rank = std::ssize(slot_to_expert) / num_ranks;
  const std::int64_t num_mask_words = ceil_div(num_ranks, 64);
  const Lists replicas = replicas_of(slot_to_expert, num_experts);
  const Lists hosts = hosts_of(replicas, slots_per_rank);
  const std::vector<std::uint64_t> masks = masks_of(hosts, num_mask_words);

  Numbers by_scarcity(at(num_experts));
  std::iota(by_scarcity.begin(), by_scarcity.end(), 0);
  std::stable_sort(by_scarcity.begin(), by_scarcity.end(),
                   [&](std::int32_t a, std::int32_t b) { return hosts.size_of(a) < hosts.size_of(b); });
  const auto num_single_host = std::count_if(by_scarcity.begin(), by_scarcity.end(),
                                             [&](std::int32_t expert) { return hosts.size_of(expert) == 1; });

  Numbers all;
  std::vector<std::int64_t> begin;
  for (const Numbers* list : std::initializer_list<const Numbers*>{&replicas.begin, &replicas.values, &hosts.begin,
                                                                   &hosts.values, &by_scarcity}) {
    begin.push_back(std::ssize(all));
    all.insert(all.end(), list->begin(), list->end());
  }
  numbers_ = Buffer<std::int32_t>("routing tables", std::ssize(all));
  masks_ = Buffer<std::uint64_t>("host masks", std::ssize(masks));
  copy_from_host<std::int32_t>(numbers_.data(), all);
  copy_from_host<std::uint64_t>(masks_.data(), masks);
  const std::int32_t* const lists = numbers_.data();
  pointers_ = {.num_experts = static_cast<std::int32_t>(num_experts),
               .num_ranks = static_cast<std::int32_t>(num_ranks),
               .slots_per_rank = static_cast<std::int32_t>(slots_per_rank),
               .rank = static_cast<std::int32_t>(rank),
               .num_mask_words = static_cast<std::int32_t>(num_mask_words),
               .num_single_host = static_cast<std::int32_t>(num_single_host),
               .replica_begin = lists + begin[0],
               .replicas = lists + begin[1],
               .host_begin = lists + begin[2],
               .hosts = lists + begin[3],
               .by_scarcity = lists + begin[4],
               .host_masks = masks_.data()};
}

}  // namespace metro
