// The policies against tests/data/routing/policies.json, 90 problems solved by an independent implementation.
#include "base/file.hpp"
#include "base/json.hpp"
#include "routing/instances.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

using metro::ExpertRouter;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::test::Instance;
using nlohmann::json;
using Ids = std::vector<std::int32_t>;

namespace {

const json& reference() {
  static const std::string path = METRO_TEST_DATA "/routing/policies.json";
  static const json document =
      metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
  return document;
}

Ids flattened(const json& rows) {
  Ids values;
  for (const json& row : rows) {
    for (const json& value : row) {
      values.push_back(value.get<std::int32_t>());
    }
  }
  return values;
}

Instance instance_of(const json& problem) {
  return {problem.at("num_experts"), problem.at("num_ranks"), flattened(problem.at("physical_to_logical")),
          problem.at("counts").get<Ids>()};
}

}  // namespace

TEST_CASE("metro and metro-scarce serve every expert of the reference problems on the reference rank") {
  REQUIRE(reference().size() == 90);
  for (const RoutingPolicy policy : {RoutingPolicy::metro, RoutingPolicy::metro_scarce}) {
    for (const json& problem : reference()) {
      const Instance instance = instance_of(problem);
      const json& expected = problem.at("policies").at(std::string(metro::name_of(policy)));
      Ids expected_ranks(instance.counts.size(), -1);
      for (const auto& [expert, rank] : expected.at("rank_of_expert").items()) {
        expected_ranks.at(std::stoul(expert)) = rank.get<std::int32_t>();
      }
      const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
      ExpertRouter router(policy, map);
      Ids expert_to_rank(instance.counts.size());

      router.route(instance.counts, expert_to_rank);

      CHECK(expert_to_rank == expected_ranks);
      CHECK(Ids(router.activated().begin(), router.activated().end()) == expected.at("activated").get<Ids>());
      CHECK(router.lambda() == expected.at("lambda").get<std::int32_t>());
    }
  }
}

TEST_CASE("exact reaches the optimum of the reference problems with one replica per active expert") {
  REQUIRE(reference().size() == 90);
  for (const json& problem : reference()) {
    const Instance instance = instance_of(problem);
    const json& expected = problem.at("policies").at("exact");
    const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
    ExpertRouter router(RoutingPolicy::exact, map);
    Ids expert_to_rank(instance.counts.size());

    router.route(instance.counts, expert_to_rank);

    const Ids activated = metro::test::checked_activated(instance, expert_to_rank);
    CHECK(Ids(router.activated().begin(), router.activated().end()) == activated);
    CHECK(router.lambda() == *std::max_element(activated.begin(), activated.end()));
    CHECK(router.lambda() == expected.at("lambda").get<std::int32_t>());
    CHECK(std::accumulate(activated.begin(), activated.end(), 0) == expected.at("sum").get<std::int32_t>());
    if (!problem.at("brute_force").is_null()) {
      CHECK(router.lambda() == problem.at("brute_force").get<std::int32_t>());
    }
    const auto num_active = std::accumulate(activated.begin(), activated.end(), 0);
    CHECK(metro::lambda_lower_bound(num_active, instance.num_ranks) == problem.at("bound").get<std::int32_t>());
  }
}

TEST_CASE("even sends every assignment of the reference problems to the reference slot") {
  REQUIRE(reference().size() == 90);
  for (const json& problem : reference()) {
    const Instance instance = instance_of(problem);
    const json& expected = problem.at("policies").at("even");
    const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
    const Ids expert_ids = flattened(problem.at("topk_idx"));
    Ids occurrences(instance.counts.size());
    Ids slots(expert_ids.size());

    metro::route_even(map, expert_ids, 0, occurrences, slots);

    CHECK(slots == flattened(expected.at("slot")));
    const Ids activated = metro::activated_slots(map, slots);
    CHECK(activated == expected.at("activated").get<Ids>());
    CHECK(*std::max_element(activated.begin(), activated.end()) == expected.at("lambda").get<std::int32_t>());
  }
}
