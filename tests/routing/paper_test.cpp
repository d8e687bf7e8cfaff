// What the METRO paper and its baselines imply: toy cases, saturated batches, replicas on one rank, few experts.
#include "placement/placement.hpp"
#include "routing/activated_slots.hpp"
#include "routing/instances.hpp"
#include "routing/optimum.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <numeric>

using metro::ExpertRouter;
using metro::Placement;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::test::Instance;
using Ids = std::vector<std::int32_t>;

namespace {

struct Activated {
  std::int32_t lambda, sum;
};

Activated summary_of(std::span<const std::int32_t> activated) {
  return {*std::max_element(activated.begin(), activated.end()),
          std::accumulate(activated.begin(), activated.end(), 0)};
}

Activated route(RoutingPolicy policy, const ReplicaMap& map, const Ids& counts) {
  ExpertRouter router(policy, map);
  Ids expert_to_rank(counts.size());
  router.route(counts, expert_to_rank);
  return summary_of(router.activated());
}

// `even` for counts[e] rows of every expert, expert after expert.
Activated route_even(const ReplicaMap& map, const Ids& counts) {
  Ids expert_ids;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    expert_ids.insert(expert_ids.end(), static_cast<std::size_t>(counts[expert]), static_cast<std::int32_t>(expert));
  }
  Ids occurrences(counts.size());
  Ids slots(expert_ids.size());
  metro::route_even(map, expert_ids, 0, occurrences, slots);
  return summary_of(metro::test::activated_slots(map, slots));
}

constexpr std::array expert_granular{RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact};

}  // namespace

TEST_CASE("one hot expert with four replicas activates one of them, and all four under even") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2, /**/ 0, 3, /**/ 0, 4}, 5, 4);
  const Ids counts{1000, 0, 0, 0, 0};

  for (const RoutingPolicy policy : expert_granular) {
    CHECK(route(policy, map, counts).lambda == 1);
    CHECK(route(policy, map, counts).sum == 1);
  }
  CHECK(route_even(map, counts).lambda == 1);
  CHECK(route_even(map, counts).sum == 4);
}

TEST_CASE("two replicas of an expert on one rank are one activation, and may be two under even") {
  const ReplicaMap map(Ids{3, 2, 2, 2, /**/ 0, 1, -1, -1}, 4, 2);
  const Ids counts{0, 0, 9, 1};

  for (const RoutingPolicy policy : expert_granular) {
    CHECK(route(policy, map, counts).lambda == 2);
  }
  CHECK(route_even(map, counts).lambda == 4);
}

TEST_CASE("eight experts with two replicas each on eight ranks: even activates two per rank, the optimum is one") {
  const Placement placement = metro::place_trivial(1, 8, 8, 2);
  const ReplicaMap map(placement.layer(0), 8, 8);
  const Ids counts(8, 2);

  CHECK(route_even(map, counts).lambda == 2);
  CHECK(route(RoutingPolicy::exact, map, counts).lambda == 1);
  CHECK(route(RoutingPolicy::metro, map, counts).lambda <= 2);
  CHECK(route(RoutingPolicy::metro_scarce, map, counts).lambda <= 2);
}

TEST_CASE("a saturated batch activates every slot under even and experts / ranks under exact") {
  const std::int64_t slots_per_rank = GENERATE(16, 18, 20, 24);
  // The experts dealt out evenly, then the spare slots filled with the next rank's experts.
  Placement placement{1, 128, 8, slots_per_rank, {}};
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    for (std::int32_t slot = 0; slot < slots_per_rank; ++slot) {
      placement.slot_to_expert.push_back(slot < 16 ? rank * 16 + slot : (rank * 16 + slot) % 128);
    }
  }
  metro::check_placement(placement, 1, 128, 8, "dealt");
  const ReplicaMap map(placement.layer(0), 128, 8);
  const Ids counts(128, 8);

  CHECK(route_even(map, counts).lambda == slots_per_rank);
  CHECK(route(RoutingPolicy::exact, map, counts).lambda == 16);
  CHECK(route(RoutingPolicy::exact, map, counts).sum == 128);
}

TEST_CASE("a saturated batch on an EPLB placement activates exactly the replicas under even") {
  const double replication = GENERATE(1.125, 1.25, 1.5);
  std::mt19937_64 random(7);
  const Ids popularity = metro::test::random_counts(128, 4000, 8, 0.7, random);
  const std::int64_t slots_per_rank = metro::slots_for_replication(128, 8, replication);
  const Placement placement = metro::place_eplb(std::vector<std::int64_t>(popularity.begin(), popularity.end()), 1, 128,
                                                1, 1, 8, slots_per_rank);
  const ReplicaMap map(placement.layer(0), 128, 8);
  const Ids counts(128, 64);

  CHECK(route_even(map, counts).lambda == static_cast<std::int32_t>(16 * replication));
  CHECK(route(RoutingPolicy::exact, map, counts).lambda < slots_per_rank);
}

TEST_CASE("metro and metro-scarce are never below the optimum, and metro is within a quarter of it on average") {
  std::mt19937_64 random(8);
  double sum_of_ratios = 0.0;
  double sum_of_scarce_ratios = 0.0;
  int num_instances = 0;
  for (const std::int64_t slots_per_rank : {18, 20, 24}) {
    for (const double skew : {0.0, 0.7, 1.2, 1.8}) {
      for (int round = 0; round < 84; ++round, ++num_instances) {
        const std::int64_t num_tokens = std::int64_t{32} << (round % 2);
        Instance instance{128, 8, {}, metro::test::random_counts(128, num_tokens, 8, skew, random)};
        const std::vector<std::int64_t> loads(instance.counts.begin(), instance.counts.end());
        instance.slot_to_expert = metro::place_eplb(loads, 1, 128, 1, 1, 8, slots_per_rank).slot_to_expert;
        const ReplicaMap map(instance.slot_to_expert, 128, 8);

        const std::int32_t metro = route(RoutingPolicy::metro, map, instance.counts).lambda;
        const std::int32_t scarce = route(RoutingPolicy::metro_scarce, map, instance.counts).lambda;

        const std::int32_t optimum = metro::test::lambda_by_matching(instance);
        CHECK(metro >= optimum);
        CHECK(scarce >= optimum);
        CHECK(route(RoutingPolicy::exact, map, instance.counts).lambda == optimum);
        sum_of_ratios += static_cast<double>(metro) / optimum;
        sum_of_scarce_ratios += static_cast<double>(scarce) / optimum;
      }
    }
  }
  REQUIRE(num_instances >= 1000);
  CHECK(sum_of_ratios / num_instances <= 1.25);
  CHECK(sum_of_scarce_ratios <= sum_of_ratios);
}

TEST_CASE("splitting an expert over hosts never beats exact, and collapsing a split never raises lambda") {
  std::mt19937_64 random(9);
  for (int round = 0; round < 300; ++round) {
    const Instance instance = metro::test::random_instance({24, 6, 8}, 0.1, 0.8, random);
    const ReplicaMap map(instance.slot_to_expert, 24, 6);
    Ids split(6, 0);
    Ids collapsed(6, 0);
    for (const std::size_t expert : instance.active_experts()) {
      Ids chosen;
      for (const std::int32_t host : instance.hosts_of(expert)) {
        if (random() % 4 == 0) {
          chosen.push_back(host);
        }
      }
      if (chosen.empty()) {
        chosen.push_back(instance.hosts_of(expert).back());
      }
      std::for_each(chosen.begin(), chosen.end(), [&](auto rank) { ++split[static_cast<std::size_t>(rank)]; });
      ++collapsed[static_cast<std::size_t>(chosen[random() % chosen.size()])];
    }

    CHECK(summary_of(collapsed).lambda <= summary_of(split).lambda);
    CHECK(route(RoutingPolicy::exact, map, instance.counts).lambda <= summary_of(collapsed).lambda);
    CHECK(route(RoutingPolicy::exact, map, instance.counts).lambda <= route_even(map, instance.counts).lambda);
  }
}

TEST_CASE("four experts on eight ranks: each twice, or on four ranks with the others empty") {
  const Ids counts{3, 1, 4, 1};
  const Placement twice = metro::place_trivial(1, 4, 8, 1);
  const ReplicaMap twice_map(twice.layer(0), 4, 8);
  const ReplicaMap with_empty_map(Ids{-1, 0, -1, 1, 2, -1, 3, -1}, 4, 8);

  for (const RoutingPolicy policy : expert_granular) {
    CHECK(route(policy, twice_map, counts).lambda == 1);
    CHECK(route(policy, with_empty_map, counts).lambda == 1);
    CHECK(route(policy, with_empty_map, counts).sum == 4);
  }
  for (std::int64_t expert = 0; expert < 4; ++expert) {
    CHECK(twice_map.hosts_of(expert).size() == 2);
  }
  CHECK(route_even(with_empty_map, counts).sum == 4);
}
