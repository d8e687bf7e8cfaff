#include "base/error.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

using metro::RoutingPolicy;

TEST_CASE("every policy has the name decks use and is found by it") {
  CHECK(metro::routing_policy_named("metro") == RoutingPolicy::metro);
  CHECK(metro::routing_policy_named("metro-scarce") == RoutingPolicy::metro_scarce);
  CHECK(metro::routing_policy_named("exact") == RoutingPolicy::exact);
  CHECK(metro::routing_policy_named("even") == RoutingPolicy::even);
  for (const char* name : {"metro", "metro-scarce", "exact", "even", "vllm-random", "vllm-modulo", "vllm-knuth",
                           "static", "local", "makespan"}) {
    CHECK(metro::name_of(metro::routing_policy_named(name).value()) == name);
  }
  CHECK(metro::routing_policies().size() == 10);
}

TEST_CASE("an unknown policy name finds nothing") {
  for (const char* name : {"", "METRO", "metro_scarce", "exact ", "eve"}) {
    CHECK_FALSE(metro::routing_policy_named(name).has_value());
  }
}

TEST_CASE("only metro, metro-scarce and exact keep the rows of an expert together") {
  CHECK(metro::is_expert_granular(RoutingPolicy::metro));
  CHECK(metro::is_expert_granular(RoutingPolicy::metro_scarce));
  CHECK(metro::is_expert_granular(RoutingPolicy::exact));
  CHECK(std::ranges::count_if(metro::routing_policies(), metro::is_expert_granular) == 3);
  CHECK(std::ranges::count_if(metro::routing_policies(), metro::needs_counts_of_all_ranks) == 4);
  CHECK(metro::needs_counts_of_all_ranks(RoutingPolicy::makespan));

  const metro::ReplicaMap map(std::vector<std::int32_t>{0}, 1, 1);
  CHECK_THROWS_AS(metro::ExpertRouter(RoutingPolicy::even, map), metro::Bug);
}

TEST_CASE("the lower bound of lambda is the active experts per rank, rounded up") {
  CHECK(metro::lambda_lower_bound(0, 8) == 0);
  CHECK(metro::lambda_lower_bound(1, 8) == 1);
  CHECK(metro::lambda_lower_bound(128, 8) == 16);
  CHECK(metro::lambda_lower_bound(129, 8) == 17);
  CHECK(metro::lambda_lower_bound(std::numeric_limits<std::int32_t>::max(), 1) == 2147483647);
}
