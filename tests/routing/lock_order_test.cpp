// The greedy router without a fixed order of experts, as in the paper's kernel.
#include "routing/lock_order.hpp"
#include "base/error.hpp"
#include "placement/placement.hpp"
#include "routing/instances.hpp"
#include "routing/optimum.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

using metro::ReplicaMap;
using metro::test::Instance;
using Ids = std::vector<std::int32_t>;

namespace {

Ids route(const ReplicaMap& map, const Ids& counts, std::uint64_t seed) {
  Ids expert_to_rank(counts.size(), 1234);
  metro::route_in_lock_order(map, counts, seed, expert_to_rank);
  return expert_to_rank;
}

// 128 experts on 8 ranks, 1.5 replicas each, as in the paper's experiments.
Instance eplb_instance(std::mt19937_64& random) {
  Instance instance{128, 8, {}, metro::test::random_counts(128, 256, 8, 0.7, random)};
  const std::vector<std::int64_t> loads(instance.counts.begin(), instance.counts.end());
  instance.slot_to_expert = metro::place_eplb(loads, 1, 128, 1, 1, 8, 24).slot_to_expert;
  return instance;
}

}  // namespace

TEST_CASE("in any lock order every active expert is on one of its hosts and lambda is not below the optimum") {
  std::mt19937_64 random(31);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Instance instance = metro::test::random_instance({24, 6, 8}, 0.1, 0.8, random);
    const ReplicaMap map(instance.slot_to_expert, 24, 6);

    const Ids activated = metro::test::checked_activated(instance, route(map, instance.counts, seed));

    CHECK(*std::max_element(activated.begin(), activated.end()) >= metro::test::lambda_by_matching(instance));
  }
}

TEST_CASE("a seed gives the same order every time, and no seed is the same as metro on every problem") {
  std::mt19937_64 random(32);
  const Instance instance = eplb_instance(random);
  const ReplicaMap map(instance.slot_to_expert, 128, 8);
  Ids in_id_order(128);
  metro::ExpertRouter(metro::RoutingPolicy::metro, map).route(instance.counts, in_id_order);

  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CHECK(route(map, instance.counts, seed) == route(map, instance.counts, seed));
    CHECK(route(map, instance.counts, seed) != in_id_order);
  }
}

TEST_CASE("every expert is equally often the second of three") {
  // All three on both ranks: the first gets rank 0, the second rank 1, the third rank 0.
  const ReplicaMap map(Ids{0, 1, 2, /**/ 0, 1, 2}, 3, 2);
  std::map<Ids, int> seen;

  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    ++seen[route(map, {1, 1, 1}, seed)];
  }

  REQUIRE(seen.size() == 3);  // which expert is second, alone on rank 1
  for (const auto& [expert_to_rank, number] : seen) {
    CHECK(std::count(expert_to_rank.begin(), expert_to_rank.end(), 1) == 1);
    CHECK(number > 900);
    CHECK(number < 1100);
  }
}

TEST_CASE("two lock orders disagree on a tenth to a third of the experts at 1.5 replicas") {
  std::mt19937_64 random(33);
  int num_active = 0;
  int num_different = 0;
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Instance instance = eplb_instance(random);
    const ReplicaMap map(instance.slot_to_expert, 128, 8);
    const Ids first = route(map, instance.counts, 2 * round);
    const Ids second = route(map, instance.counts, 2 * round + 1);
    num_active += static_cast<int>(instance.active_experts().size());
    for (std::size_t expert = 0; expert < first.size(); ++expert) {
      num_different += first[expert] != second[expert] ? 1 : 0;
    }
  }

  // An independent simulation of this case found 19%.
  CHECK(num_different * 10 > num_active);
  CHECK(num_different * 3 < num_active);
}

TEST_CASE("experts without rows have no rank in any lock order, and arrays of the wrong length are bugs") {
  const ReplicaMap map(Ids{0, 1, 2, 0}, 3, 2);
  Ids two(2);

  CHECK(route(map, {0, 0, 0}, 1) == Ids{-1, -1, -1});
  CHECK(route(map, {0, 5, 0}, 1) == Ids{-1, 0, -1});
  CHECK_THROWS_AS(metro::route_in_lock_order(map, two, 1, two), metro::Bug);
}
