// The policies against tests/data/routing/policies.json, 90 problems solved by an independent implementation.
#include "base/file.hpp"
#include "base/json.hpp"
#include "routing/instances.hpp"
#include "routing/policy.hpp"
#include "routing/step_router.hpp"

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

TEST_CASE("even and vLLM's policies send every assignment of the reference problems to the reference slot") {
  REQUIRE(reference().size() == 90);
  for (const RoutingPolicy policy : {RoutingPolicy::even, RoutingPolicy::vllm_modulo, RoutingPolicy::vllm_knuth}) {
    for (const json& problem : reference()) {
      const Instance instance = instance_of(problem);
      const json& expected = problem.at("policies").at(std::string(metro::name_of(policy)));
      const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
      const Ids expert_ids = flattened(problem.at("topk_idx"));
      const auto top_k = problem.at("top_k").get<std::int64_t>();
      Ids slots(expert_ids.size());
      metro::StepRouter router(policy, map);

      router.route(expert_ids, top_k, Ids(expert_ids.size() / static_cast<std::size_t>(top_k), 0), 0, 0, slots);

      CHECK(slots == flattened(expected.at("slot")));
      CHECK(Ids(router.activated().begin(), router.activated().end()) == expected.at("activated").get<Ids>());
      CHECK(router.lambda() == expected.at("lambda").get<std::int32_t>());
    }
  }
}

TEST_CASE("a step router puts the experts of the reference problems where the expert router does") {
  for (const RoutingPolicy policy : {RoutingPolicy::metro, RoutingPolicy::metro_scarce, RoutingPolicy::exact}) {
    for (const json& problem : reference()) {
      const Instance instance = instance_of(problem);
      const ReplicaMap map(instance.slot_to_expert, instance.num_experts, instance.num_ranks);
      ExpertRouter experts(policy, map);
      Ids expert_to_rank(instance.counts.size());
      experts.route(instance.counts, expert_to_rank);
      const Ids expert_ids = flattened(problem.at("topk_idx"));
      Ids slots(expert_ids.size());
      metro::StepRouter router(policy, map);

      router.route(expert_ids, 1, Ids(expert_ids.size(), 0), 0, 0, slots);

      bool is_equal = true;
      for (std::size_t idx = 0; idx < slots.size(); ++idx) {
        const auto expert = static_cast<std::size_t>(expert_ids[idx]);
        is_equal = is_equal && slots[idx] / map.slots_per_rank() == expert_to_rank[expert];
      }
      CHECK(is_equal);
      CHECK(router.lambda() == problem.at("policies").at(std::string(metro::name_of(policy))).at("lambda"));
    }
  }
}
