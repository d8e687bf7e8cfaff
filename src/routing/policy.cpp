// The names of the routing policies, the token-granular policy `even`, and counts that describe a routing.
#include "routing/policy.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace metro {

namespace {

struct PolicyEntry {
  RoutingPolicy policy;
  std::string_view name;
  bool is_expert_granular;
};

constexpr std::array<PolicyEntry, 10> policies{{
    {RoutingPolicy::metro, "metro", true},
    {RoutingPolicy::metro_scarce, "metro-scarce", true},
    {RoutingPolicy::exact, "exact", true},
    {RoutingPolicy::even, "even", false},
    {RoutingPolicy::vllm_random, "vllm-random", false},
    {RoutingPolicy::vllm_modulo, "vllm-modulo", false},
    {RoutingPolicy::vllm_knuth, "vllm-knuth", false},
    {RoutingPolicy::static_choice, "static", false},
    {RoutingPolicy::local, "local", false},
    {RoutingPolicy::makespan, "makespan", false},
}};

constexpr std::array<RoutingPolicy, policies.size()> all_policies = [] {
  std::array<RoutingPolicy, policies.size()> all{};
  for (std::size_t idx = 0; idx < all.size(); ++idx) {
    all[idx] = policies[idx].policy;
  }
  return all;
}();

const PolicyEntry& entry_of(RoutingPolicy policy) {
  const auto* const entry = std::find_if(policies.begin(), policies.end(),
                                         [policy](const PolicyEntry& known) { return known.policy == policy; });
  METRO_REQUIRE(entry != policies.end(), fmt::format("policy {}", static_cast<int>(policy)));
  return *entry;
}

}  // namespace

std::span<const RoutingPolicy> routing_policies() {
  return all_policies;
}

std::optional<RoutingPolicy> routing_policy_named(std::string_view name) {
  for (const PolicyEntry& entry : policies) {
    if (entry.name == name) {
      return entry.policy;
    }
  }
  return std::nullopt;
}

std::string_view name_of(RoutingPolicy policy) {
  return entry_of(policy).name;
}

bool is_expert_granular(RoutingPolicy policy) {
  return entry_of(policy).is_expert_granular;
}

bool needs_counts_of_all_ranks(RoutingPolicy policy) {
  return is_expert_granular(policy) || policy == RoutingPolicy::makespan;
}

std::int32_t lambda_lower_bound(std::int64_t num_active, std::int64_t num_ranks) {
  METRO_REQUIRE(num_active >= 0 && num_ranks >= 1, fmt::format("{} active on {} ranks", num_active, num_ranks));
  return static_cast<std::int32_t>((num_active + num_ranks - 1) / num_ranks);
}

void route_even(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t start,
                std::span<std::int32_t> occurrences, std::span<std::int32_t> slots) {
  METRO_REQUIRE(start >= 0, fmt::format("start = {}", start));
  METRO_REQUIRE(std::ssize(occurrences) == map.num_experts(), fmt::format("{} occurrences", occurrences.size()));
  METRO_REQUIRE(slots.size() == expert_ids.size(), fmt::format("{} slots for {}", slots.size(), expert_ids.size()));
  // Kept as the replica that comes next, which spares a division per assignment.
  for (std::int64_t expert = 0; expert < map.num_experts(); ++expert) {
    const auto num_replicas = std::ssize(map.slots_of(expert));
    occurrences[static_cast<std::size_t>(expert)] = static_cast<std::int32_t>(start % num_replicas);
  }
  for (std::size_t idx = 0; idx < expert_ids.size(); ++idx) {
    const std::int32_t expert = expert_ids[idx];
    if (expert < 0 || expert >= map.num_experts()) {
      slots[idx] = -1;
      continue;
    }
    const auto replicas = map.slots_of(expert);
    auto& next = occurrences[static_cast<std::size_t>(expert)];
    slots[idx] = replicas[static_cast<std::size_t>(next)];
    next = next + 1 == std::ssize(replicas) ? 0 : next + 1;
  }
}

}  // namespace metro
