// `exact` against oracles of its own: brute force, matching, closed forms, and its definition step by step.
#include "base/error.hpp"
#include "routing/instances.hpp"
#include "routing/optimum.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using metro::ExpertRouter;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::test::Instance;
using metro::test::Size;
using Ids = std::vector<std::int32_t>;

namespace {

struct Routed {
  Ids expert_to_rank;
  std::int32_t lambda;
};

// Routes, and checks that the router's account of the result agrees with the result.
Routed route(RoutingPolicy policy, const Instance& instance) {
  const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
  ExpertRouter router(policy, map);
  Routed routed{Ids(instance.counts.size()), 0};
  router.route(instance.counts, routed.expert_to_rank);
  const Ids activated = metro::test::checked_activated(instance, routed.expert_to_rank);
  routed.lambda = *std::max_element(activated.begin(), activated.end());
  REQUIRE(std::equal(activated.begin(), activated.end(), router.activated().begin(), router.activated().end()));
  REQUIRE(routed.lambda == router.lambda());
  return routed;
}

// One row for every expert of a ring's chain: expert i lies on ranks i and i + 1, and one more expert on rank 0 only.
// Ids fall along the chain, so that the greedy pass leaves the last rank empty.
Instance chain(std::int32_t num_ranks) {
  Instance instance{num_ranks, num_ranks, Ids(static_cast<std::size_t>(3 * num_ranks), -1), {}};
  instance.counts.assign(static_cast<std::size_t>(num_ranks), 1);
  const auto put = [&](std::int32_t expert, std::int32_t rank, std::int32_t slot) {
    instance.slot_to_expert[static_cast<std::size_t>(3 * rank + slot)] = expert;
  };
  put(num_ranks - 1, 0, 2);
  for (std::int32_t link = 0; link + 1 < num_ranks; ++link) {
    put(num_ranks - 2 - link, link, 0);
    put(num_ranks - 2 - link, link + 1, 1);
  }
  return instance;
}

}  // namespace

TEST_CASE("exact equals brute force on small problems") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const auto num_experts = static_cast<std::int64_t>(1 + random() % 8);
    const auto num_ranks = static_cast<std::int64_t>(1 + random() % 4);
    const auto slots_per_rank = (num_experts + num_ranks - 1) / num_ranks + static_cast<std::int64_t>(random() % 4);
    const Instance instance = metro::test::random_instance({num_experts, num_ranks, slots_per_rank}, 0.3, 0.8, random);

    CHECK(route(RoutingPolicy::exact, instance).lambda == metro::test::lambda_by_brute_force(instance));
  }
}

TEST_CASE("exact equals a matching with capacities at every size") {
  struct Rounds {
    Size size;
    int count;
  };
  const auto [size, num_rounds] = GENERATE(
      Rounds{{16, 8, 3}, 1000}, Rounds{{64, 8, 10}, 500}, Rounds{{128, 8, 20}, 500}, Rounds{{128, 8, 24}, 500},
      Rounds{{256, 16, 20}, 300}, Rounds{{256, 16, 24}, 300}, Rounds{{256, 64, 8}, 200}, Rounds{{256, 65, 12}, 200},
      Rounds{{512, 144, 6}, 100}, Rounds{{512, 144, 12}, 100}, Rounds{{200, 200, 3}, 100}, Rounds{{1024, 1024, 4}, 20});
  std::mt19937_64 random(2);
  int num_repaired = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const double active_share = 0.2 + 0.8 * metro::test::uniform(random);
    const Instance instance = metro::test::random_instance(size, 0.1, active_share, random);

    const std::int32_t lambda = route(RoutingPolicy::exact, instance).lambda;

    CHECK(lambda == metro::test::lambda_by_matching(instance));
    num_repaired += route(RoutingPolicy::metro_scarce, instance).lambda > lambda ? 1 : 0;
  }
  CHECK(num_repaired > 0);  // else this size would test the greedy pass only
}

TEST_CASE("exact makes the moves its definition states and no others") {
  const Size size = GENERATE(Size{7, 4, 3}, Size{16, 8, 3}, Size{40, 12, 5}, Size{128, 8, 24}, Size{100, 80, 2});
  std::mt19937_64 random(3);
  for (int round = 0; round < 150; ++round) {
    const Instance instance = metro::test::random_instance(size, 0.1, 0.7, random);

    CHECK(route(RoutingPolicy::exact, instance).expert_to_rank == metro::test::exact_by_definition(instance));
  }
}

TEST_CASE("exact hands experts on along a chain through all ranks") {
  const std::int32_t num_ranks = GENERATE(3, 64, 65, 128, 1000);
  const Instance instance = chain(num_ranks);
  REQUIRE(route(RoutingPolicy::metro_scarce, instance).lambda == 2);

  const Routed routed = route(RoutingPolicy::exact, instance);

  CHECK(routed.lambda == 1);
  Ids expected(instance.counts.size());
  for (std::int32_t link = 0; link + 1 < num_ranks; ++link) {
    expected[static_cast<std::size_t>(num_ranks - 2 - link)] = link + 1;
  }
  CHECK(routed.expert_to_rank == expected);
}

TEST_CASE("exact stops where a few ranks alone hold many experts") {
  // Experts 0..5 lie on ranks 0 and 1 only, expert 6 on ranks 2 and 3: 3 is the optimum though 7 / 4 rounds to 2.
  const Instance instance{
      7,
      4,
      {0, 1, 2, 3, 4, 5, /**/ 0, 1, 2, 3, 4, 5, /**/ 6, -1, -1, -1, -1, -1, /**/ 6, -1, -1, -1, -1, -1},
      {1, 1, 1, 1, 1, 1, 1}};

  CHECK(route(RoutingPolicy::exact, instance).lambda == 3);
}

TEST_CASE("routing the same counts again gives the same ranks, whatever the router did before") {
  const RoutingPolicy policy = GENERATE(RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact);
  std::mt19937_64 random(4);
  Instance instance = metro::test::random_instance({128, 8, 20}, 0.0, 0.9, random);
  const ReplicaMap map(instance.slot_to_expert, 128, 8);
  ExpertRouter used(policy, map);
  for (int round = 0; round < 50; ++round) {
    instance.counts = metro::test::random_counts(128, 1 + round, 8, 1.0, random);
    Ids first(128, 77);
    Ids second(128, -5);

    used.route(instance.counts, first);
    used.route(instance.counts, second);

    CHECK(first == second);
    CHECK(first == route(policy, instance).expert_to_rank);
  }
}

TEST_CASE("without rows no expert has a rank and lambda is zero") {
  const RoutingPolicy policy = GENERATE(RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact);
  const ReplicaMap map(Ids{0, 1, 2, 0}, 3, 2);
  ExpertRouter router(policy, map);
  Ids expert_to_rank(3);
  router.route(Ids{3, 1, 1}, expert_to_rank);

  router.route(Ids{0, 0, 0}, expert_to_rank);

  CHECK(expert_to_rank == Ids{-1, -1, -1});
  CHECK(router.lambda() == 0);
  CHECK(std::all_of(router.activated().begin(), router.activated().end(), [](auto number) { return number == 0; }));
}

TEST_CASE("one rank serves everything") {
  const RoutingPolicy policy = GENERATE(RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact);
  const Instance instance{3, 1, {2, 0, 1, 1}, {5, 0, 1}};

  const Routed routed = route(policy, instance);

  CHECK(routed.expert_to_rank == Ids{0, -1, 0});
  CHECK(routed.lambda == 2);
}

TEST_CASE("ties go to the lowest rank and order to the lowest id") {
  // Expert 0 on ranks 1 and 2, expert 1 on ranks 0 and 1, expert 2 on rank 1 only.
  const Instance instance{3, 3, {1, -1, -1, /**/ 0, 1, 2, /**/ 0, -1, -1}, {1, 1, 1}};

  CHECK(route(RoutingPolicy::metro, instance).expert_to_rank == Ids{1, 0, 1});
  CHECK(route(RoutingPolicy::metro_scarce, instance).expert_to_rank == Ids{2, 0, 1});
  CHECK(route(RoutingPolicy::exact, instance).expert_to_rank == Ids{2, 0, 1});
}

TEST_CASE("arrays of the wrong length are a bug") {
  const ReplicaMap map(Ids{0, 1, 2, 0}, 3, 2);
  ExpertRouter router(RoutingPolicy::exact, map);
  Ids three(3);
  Ids two(2);

  CHECK_THROWS_AS(router.route(two, three), metro::Bug);
  CHECK_THROWS_AS(router.route(three, two), metro::Bug);
}
