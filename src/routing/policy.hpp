// Routing policies: which replica serves which assignment (token, k-th choice) of a step. Integer, deterministic and
// the same on every rank; they never change what the model computes, only where. Definitions: docs/routing.md.
#pragma once

#include "routing/replica_map.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

enum class RoutingPolicy { metro, metro_scarce, exact, even };

std::optional<RoutingPolicy> routing_policy_named(std::string_view name);  // "metro-scarce" -> metro_scarce
std::string_view name_of(RoutingPolicy policy);
// Expert-granular policies send all rows of an expert to one rank; the others choose for every assignment.
bool is_expert_granular(RoutingPolicy policy);

// Scratch and result of the expert-granular policies; sized once, nothing is allocated while routing.
class ExpertRouter {
 public:
  // Keeps a reference to `map`, which must outlive it.
  ExpertRouter(RoutingPolicy policy, const ReplicaMap& map);

  // counts [num_experts]: rows per expert, >= 0. Writes expert_to_rank [num_experts]: the serving rank of each active
  // expert, -1 for experts without rows. Afterwards activated() [num_ranks] and lambda() describe the result.
  //   metro        active experts in ascending id, each to the host with the fewest activated so far (tie: lowest rank)
  //   metro_scarce the same in ascending (number of hosts, id)
  //   exact        metro_scarce, then repaired along augmenting paths until no assignment has a smaller lambda
  void route(std::span<const std::int32_t> counts, std::span<std::int32_t> expert_to_rank);

  std::span<const std::int32_t> activated() const { return activated_; }
  std::int32_t lambda() const;

 private:
  void greedy(std::span<const std::int32_t> counts, std::span<std::int32_t> expert_to_rank);
  void repair(std::span<std::int32_t> expert_to_rank);
  bool lower_one(std::int32_t from_rank, std::span<std::int32_t> expert_to_rank);

  RoutingPolicy policy_;
  const ReplicaMap* map_;
  std::int32_t num_active_ = 0;
  std::vector<std::int32_t> activated_;  // [num_ranks]
  std::vector<std::int32_t> queue_;      // scratch of the breadth-first search, [num_ranks]
  std::vector<std::int32_t> reached_by_expert_, reached_from_rank_;  // scratch, [num_ranks]
};

// even: the n-th occurrence of an expert goes to its replica (start + n) mod count. expert_ids [num_rows * top_k] in row
// order; an id outside 0..num_experts-1 gives slot -1. Writes slots [num_rows * top_k].
// In decode `start` is 0 and the rows are all rows of the step; in prefill they are a rank's own and `start` is the rank.
// occurrences [num_experts] is scratch, overwritten.
void route_even(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t start,
                std::span<std::int32_t> occurrences, std::span<std::int32_t> slots);

// Replicas in use: distinct slots among `slots` (-1 ignored), per rank. [num_ranks]
std::vector<std::int32_t> activated_slots(const ReplicaMap& map, std::span<const std::int32_t> slots);

}  // namespace metro
