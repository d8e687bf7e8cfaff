// One way to call every routing policy: the rows of a step in one layer in, the slot of every assignment out, with what
// that activates. The decoder, `metro replay` and `metro bench route` route through it.
#pragma once

#include "routing/makespan.hpp"
#include "routing/node_preference.hpp"
#include "routing/policy.hpp"
#include "routing/replica_map.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace metro {

// How rows are numbered, for the policies that look at a row's number or count an expert's occurrences.
enum class RowNumbering {
  all_rows,  // through all rows of the step: decode, where every rank sees all of them
  own_rows   // each rank counts its own, and `even` and `local` begin at its id: prefill
};

struct StepRouterOptions {
  RowNumbering numbering = RowNumbering::all_rows;
  std::uint64_t seed = 0;                       // of vllm-random
  MakespanCosts costs = {};                     // of makespan
  std::vector<std::int32_t> rank_to_node = {};  // [num_ranks]; empty: all ranks on one node
  bool prefer_own_node = false;                 // of exact, on several nodes: NodePreference, for tens of microseconds
};

// rank_to_node for nodes of equal size: rank / ranks_per_node. [num_ranks]
std::vector<std::int32_t> nodes_of_size(std::int64_t num_ranks, std::int64_t ranks_per_node);

// Scratch and result of any policy for one layer; nothing is allocated while routing, but for longer batches.
class StepRouter {
 public:
  // Keeps a reference to `map`, which must outlive it.
  StepRouter(RoutingPolicy policy, const ReplicaMap& map, StepRouterOptions options = {});

  // Routes the rows of all ranks. expert_ids [num_rows * top_k] in row order; an id outside 0..num_experts-1 (padding)
  // gives slot -1 and is not counted. row_to_rank [num_rows]: the rank each row comes from, ascending.
  // Writes slots [num_rows * top_k].
  void route(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::span<const std::int32_t> row_to_rank,
             std::int64_t step, std::int64_t layer, std::span<std::int32_t> slots);

  // The same answer for the rows of `rank` alone, where nobody has all rows (RowNumbering::own_rows): route() with all
  // rows gives these slots to these rows. counts_of_ranks [num_ranks, num_experts]: rows per expert of every rank; may
  // be empty unless needs_counts_of_all_ranks(). activated() and rows() then describe all ranks if there are counts and
  // the policy needs them, else only these rows.
  void route_own(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::int64_t rank,
                 std::span<const std::int32_t> counts_of_ranks, std::int64_t step, std::int64_t layer,
                 std::span<std::int32_t> slots);

  // Of the last call. Replicas in use per rank, distinct slots: two slots of an expert on one rank are two. [num_ranks]
  std::span<const std::int32_t> activated() const { return activated_; }
  // Rows (assignments) that each rank serves. [num_ranks]
  std::span<const std::int64_t> rows() const { return rows_; }
  // The largest of activated().
  std::int32_t lambda() const;

  RoutingPolicy policy() const { return policy_; }
  std::int64_t num_bytes() const;  // memory held, without the map

 private:
  void require_valid(std::span<const std::int32_t> expert_ids, std::int64_t top_k, std::int64_t num_rows,
                     std::span<std::int32_t> slots) const;
  void route_by_counts();
  void begin_shares(std::int64_t before_rank, std::span<const std::int32_t> counts_of_ranks);
  void slots_from_counts(std::span<const std::int32_t> expert_ids, std::span<std::int32_t> slots);
  void route_by_token(std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                      std::span<const std::int32_t> row_to_rank, std::uint64_t key, std::span<std::int32_t> slots);
  void count_used(std::span<const std::int32_t> slots);

  RoutingPolicy policy_;
  const ReplicaMap* map_;
  StepRouterOptions options_;
  std::optional<ExpertRouter> expert_router_;  // of the expert-granular policies
  std::optional<NodePreference> preference_;   // of `exact`, if asked for, on several nodes
  std::optional<MakespanRouter> makespan_;     // of `makespan`
  std::vector<std::int32_t> counts_;           // [num_experts] rows of all ranks
  std::vector<std::int32_t> counts_of_nodes_;  // [num_nodes, num_experts] by source node, for preference_
  std::vector<std::int32_t> expert_to_rank_;   // [num_experts], of the expert-granular policies
  std::vector<std::int32_t> expert_to_slot_;   // [num_experts], likewise
  std::vector<std::int32_t> occurrences_;      // [num_experts]
  std::vector<std::int64_t> share_;            // [num_experts] the host of the next row, of `makespan`
  std::vector<std::int64_t> left_of_share_;    // [num_experts] how many rows it still takes
  std::vector<std::int32_t> source_;           // [num_rows] the own rank, for route_own()
  std::vector<std::uint8_t> is_used_;          // [num_slots]
  std::vector<std::int32_t> activated_;        // [num_ranks]
  std::vector<std::int64_t> rows_;             // [num_ranks]
};

}  // namespace metro
