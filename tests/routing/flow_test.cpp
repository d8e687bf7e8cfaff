// The gap between `exact` and the optimum, which must be zero, over 10,000 random problems of all shapes.
#include "placement/placement.hpp"
#include "routing/flow_oracle.hpp"
#include "routing/instances.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>

using metro::ExpertRouter;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::test::Instance;

namespace {

// Any size up to 96 experts and 96 ranks, any share of active experts and of empty slots; every fourth on an EPLB
// placement with a batch of skewed popularity.
Instance any_instance(int round, std::mt19937_64& random) {
  const auto num_experts = static_cast<std::int64_t>(1 + random() % 96);
  const auto num_ranks = static_cast<std::int64_t>(1 + random() % (random() % 8 == 0 ? 96 : 16));
  const std::int64_t slots_per_rank =
      (num_experts + num_ranks - 1) / num_ranks + static_cast<std::int64_t>(random() % 6);
  if (round % 4 != 0) {
    return metro::test::random_instance({num_experts, num_ranks, slots_per_rank}, metro::test::uniform(random),
                                        metro::test::uniform(random), random);
  }
  const std::int64_t top_k = std::min<std::int64_t>(num_experts, 4);
  Instance instance{num_experts, num_ranks, {}, {}};
  instance.counts = metro::test::random_counts(num_experts, static_cast<std::int64_t>(1 + random() % 40), top_k,
                                               2.0 * metro::test::uniform(random), random);
  const std::vector<std::int64_t> loads(instance.counts.begin(), instance.counts.end());
  instance.slot_to_expert = metro::place_eplb(loads, 1, num_experts, 1, 1, num_ranks, slots_per_rank).slot_to_expert;
  return instance;
}

}  // namespace

TEST_CASE("a maximum flow confirms the lambda of exact on 10,000 random problems, and that one less is impossible") {
  std::mt19937_64 random(61);
  int num_gaps = 0;
  int num_repaired = 0;
  for (int round = 0; round < 10'000; ++round) {
    const Instance instance = any_instance(round, random);
    const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
    std::vector<std::int32_t> expert_to_rank(instance.counts.size());
    ExpertRouter exact(RoutingPolicy::exact, map);
    ExpertRouter scarce(RoutingPolicy::metro_scarce, map);

    exact.route(instance.counts, expert_to_rank);
    const std::int32_t lambda = exact.lambda();
    const auto activated = metro::test::checked_activated(instance, expert_to_rank);
    scarce.route(instance.counts, expert_to_rank);

    REQUIRE(*std::max_element(activated.begin(), activated.end()) == lambda);
    REQUIRE(metro::test::is_feasible_by_flow(instance, lambda));
    num_gaps += lambda > 0 && metro::test::is_feasible_by_flow(instance, lambda - 1) ? 1 : 0;
    num_repaired += scarce.lambda() > lambda ? 1 : 0;
  }

  CHECK(num_gaps == 0);
  CHECK(num_repaired > 200);  // else the problems would be too easy to tell
}

TEST_CASE("a maximum flow confirms exact at the sizes of real models") {
  struct Shape {
    std::int64_t num_experts, num_ranks;
  };
  const auto [num_experts, num_ranks] = GENERATE(Shape{128, 8}, Shape{256, 16}, Shape{256, 64}, Shape{512, 144});
  std::mt19937_64 random(62);
  for (const double replication : {1.125, 1.25, 1.5}) {
    for (const std::int64_t num_tokens : {4, 32, 256}) {
      Instance instance{num_experts, num_ranks, {}, {}};
      instance.counts = metro::test::random_counts(num_experts, num_tokens, 8, 0.9, random);
      const std::vector<std::int64_t> loads(instance.counts.begin(), instance.counts.end());
      const std::int64_t slots = metro::slots_for_replication(num_experts, num_ranks, replication);
      instance.slot_to_expert = metro::place_eplb(loads, 1, num_experts, 1, 1, num_ranks, slots).slot_to_expert;
      const ReplicaMap map(instance.slot_to_expert, num_experts, num_ranks);
      std::vector<std::int32_t> expert_to_rank(instance.counts.size());
      ExpertRouter exact(RoutingPolicy::exact, map);

      exact.route(instance.counts, expert_to_rank);

      CHECK(metro::test::is_feasible_by_flow(instance, exact.lambda()));
      CHECK_FALSE(metro::test::is_feasible_by_flow(instance, exact.lambda() - 1));
    }
  }
}
