// Routing policies: which replica serves which assignment (token, k-th choice) of a step. Integer, deterministic and
// the same on every rank; they never change what the model computes, only where. Definitions: docs/routing.md.
#pragma once

#include "routing/replica_map.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metro {

enum class RoutingPolicy {
  metro,
  metro_scarce,
  exact,
  even,
  vllm_random,
  vllm_modulo,
  vllm_knuth,
  static_choice,
  local,
  makespan
};

// All of them, in the order of docs/routing.md.
std::span<const RoutingPolicy> routing_policies();

std::optional<RoutingPolicy> routing_policy_named(std::string_view name);  // "metro-scarce" -> metro_scarce
std::string_view name_of(RoutingPolicy policy);
// Expert-granular policies send all rows of an expert to one rank; the others choose for every assignment.
bool is_expert_granular(RoutingPolicy policy);
// Policies that decide from the rows per expert of all ranks together; the others need a rank's own rows only.
bool needs_counts_of_all_ranks(RoutingPolicy policy);

// No routing of num_active experts over num_ranks ranks has a smaller lambda: ceil(num_active / num_ranks).
std::int32_t lambda_lower_bound(std::int64_t num_active, std::int64_t num_ranks);

// Scratch and result of the expert-granular policies; sized once, nothing is allocated while routing.
class ExpertRouter {
 public:
  // Keeps a reference to `map`, which must outlive it. `policy` is an expert-granular one.
  ExpertRouter(RoutingPolicy policy, const ReplicaMap& map);

  // counts [num_experts]: rows per expert, >= 0. Writes expert_to_rank [num_experts]: the serving rank of each active
  // expert, -1 for experts without rows. Afterwards activated() [num_ranks] and lambda() describe the result.
  //   metro        active experts in ascending id, each to the host with the fewest activated so far (tie: lowest rank)
  //   metro_scarce the same in ascending (number of hosts, id)
  //   exact        metro_scarce, then repaired along augmenting paths until no assignment has a smaller lambda
  void route(std::span<const std::int32_t> counts, std::span<std::int32_t> expert_to_rank);

  // Active experts per rank. [num_ranks]
  std::span<const std::int32_t> activated() const { return activated_; }
  // The largest of them.
  std::int32_t lambda() const { return lambda_; }

  std::int64_t num_bytes() const;  // memory held

 private:
  std::span<const std::int32_t> collect_active(std::span<const std::int32_t> counts);
  void assign(std::span<const std::int32_t> experts, std::span<std::int32_t> expert_to_rank);
  void repair(std::span<const std::int32_t> active, std::span<std::int32_t> expert_to_rank);
  bool lower_one(std::int32_t from_rank, std::span<std::int32_t> expert_to_rank);
  std::int32_t reach_hosts_of(std::int32_t expert);
  void move_along_path(std::int32_t from_rank, std::int32_t to_rank, std::span<std::int32_t> expert_to_rank);

  // The bits of rank `rank` for the 64 experts around `expert`.
  std::uint64_t& movable_word(std::int32_t rank, std::int32_t expert) {
    return movable_on_rank_[static_cast<std::size_t>(rank * num_expert_words_ + expert / 64)];
  }

  RoutingPolicy policy_;
  const ReplicaMap* map_;
  std::int32_t lambda_ = 0;
  std::vector<std::int32_t> order_;           // the order in which the policy serves experts, [num_experts]
  std::vector<std::int32_t> active_;          // scratch: the active ones of order_, [num_experts]
  std::vector<std::int32_t> activated_;       // [num_ranks]
  std::vector<std::uint64_t> load_and_rank_;  // scratch of the greedy pass, [num_ranks]

  // Scratch of the breadth-first search of `exact`.
  std::int64_t num_expert_words_;
  std::vector<std::uint64_t> movable_on_rank_;   // bit e: e is here and could move, [num_ranks, num_expert_words]
  std::vector<std::uint64_t> reached_;           // bit r: rank r was reached, [num_mask_words]
  std::vector<std::int32_t> queue_;              // ranks in the order they were reached, [num_ranks]
  std::size_t num_reached_ = 0;                  // how many of queue_
  std::vector<std::int32_t> reached_by_expert_;  // whose move reaches the rank, [num_ranks]
};

// even: the n-th occurrence of an expert goes to its replica (start + n) mod count. expert_ids [num_rows * top_k] in
// row order; an id outside 0..num_experts-1 gives slot -1 and is not counted. Writes slots [num_rows * top_k]. In
// decode `start` is 0 and the rows are all rows of the step; in prefill they are a rank's own and `start` is the rank.
// start >= 0. occurrences [num_experts] is scratch, overwritten.
void route_even(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t start,
                std::span<std::int32_t> occurrences, std::span<std::int32_t> slots);

}  // namespace metro
