// Decode routing as one kernel: the expert ids of all rows in, which replica serves what and this rank's work list out,
// without a copy to the host in between. What src/routing does (the reference, same answer in every bit), and the lists
// that src/decoder builds from it. Definitions: docs/routing.md.
#pragma once

#include "kernels/buffer.hpp"

#include <cstdint>
#include <span>

namespace metro {

enum class StepPolicy { metro, metro_scarce, exact, even };

// What the kernel reads of a RoutingTables. Memory of kernels.
struct RoutingTablePointers {
  std::int32_t num_experts, num_ranks, slots_per_rank, rank;
  std::int32_t num_mask_words;        // 64 ranks each
  std::int32_t num_single_host;       // experts with one host; they come first in by_scarcity
  const std::int32_t* replica_begin;  // [num_experts + 1] into replicas
  const std::int32_t* replicas;       // slots of every expert, ascending; slot = rank * slots_per_rank + own slot
  const std::int32_t* host_begin;     // [num_experts + 1] into hosts
  const std::int32_t* hosts;          // ranks of every expert, ascending, each once
  const std::int32_t* by_scarcity;    // [num_experts] experts in ascending (number of hosts, id)
  const std::uint64_t* host_masks;    // [num_experts, num_mask_words] the hosts as bits
};

// The placement of one layer as the kernel reads it. Made once per layer and placement.
class RoutingTables {
 public:
  // slot_to_expert [num_ranks * slots_per_rank], host, rank-major; -1 = empty slot. Every expert has at least one slot.
  // `rank`: whose work lists are wanted.
  RoutingTables(std::span<const std::int32_t> slot_to_expert, std::int64_t num_experts, std::int64_t num_ranks,
                std::int64_t rank);

  const RoutingTablePointers& pointers() const { return pointers_; }
  std::int64_t num_bytes() const { return numbers_.num_bytes() + masks_.num_bytes(); }

 private:
  RoutingTablePointers pointers_{};
  Buffer<std::int32_t> numbers_;
  Buffer<std::uint64_t> masks_;
};

// The rows of all ranks in one step. Memory of kernels.
struct GatheredRows {
  const std::int32_t* expert_ids = nullptr;  // [num_rows, top_k]; outside 0..num_experts-1 = padding: nobody serves it
  std::int64_t num_rows = 0;
  std::int64_t top_k = 1;
  const std::int32_t* row_begin = nullptr;  // [num_ranks + 1] first row of each rank, ascending; the last is num_rows
};

// Memory of kernels, overwritten by the next step. An assignment is row * top_k + k. This rank serves
// assignments of all ranks and owns those of its own rows.
struct RoutingResult {
  std::int32_t* slots;           // [num_rows, top_k] the replica that serves each assignment; -1: padding
  std::int32_t* rows_of_expert;  // [num_experts]
  std::int32_t* expert_to_rank;  // [num_experts] -1: no rows, or the policy is `even`
  std::int32_t* activated;       // [num_ranks] replicas in use
  std::int32_t* served_by_rank;  // [num_ranks] assignments that each rank serves
  std::int32_t* lambda;          // [1] the largest of activated
  std::uint64_t* checksum;       // [1] of ids and slots: equal on ranks that agree

  // The work of this rank: own slot s computes the assignments work[work_begin[s]] .. work[work_begin[s + 1] - 1], in
  // row order.
  std::int32_t* work_begin;  // [slots_per_rank + 1]
  std::int32_t* work;        // [num_served]

  // The way back: results go to the owners of their rows, every owner's in row order.
  std::int32_t* sent_begin;  // [num_ranks + 1] where the results for each owner begin in sent_rows and served
  std::int32_t* served;      // [num_served] the assignments that this rank serves, in row order
  std::int32_t* sent_rows;   // [num_served] where each of `served` is in `work`

  // What comes back: results for own rows, by server and then in row order.
  std::int32_t* returned_begin;  // [num_ranks + 1] where the results of each server begin
  std::int32_t* returned_row;    // [own rows, top_k] where each own assignment's result is among them; -1: padding
};

// Scratch and result of one step; sized once, nothing is allocated while routing. Serves any number of layers.
class RoutingStep {
 public:
  struct Sizes {
    std::int64_t num_experts = 1, num_ranks = 1, slots_per_rank = 1;
    std::int64_t max_assignments = 0;  // num_rows * top_k of all ranks together, below 2^31
  };

  // team_size: threads that share the step, at most max_team_size(); 0 = one on a host, where waiting for each other
  // costs more than the work, and what Kokkos recommends on a device. It does not change the result.
  RoutingStep(StepPolicy policy, const Sizes& sizes, int team_size = 0);

  // What num_bytes() will be.
  static std::int64_t planned_bytes(const Sizes& sizes);

  static int max_team_size();

  // Routes the rows of one layer, in the queue. `tables` of the constructor's sizes.
  void route(const RoutingTables& tables, const GatheredRows& rows);

  const RoutingResult& result() const { return result_; }
  int team_size() const { return team_size_; }
  // Team scratch of Kokkos: 0 = near the threads (at most 48 KB), 1 = in the memory of kernels.
  int scratch_level() const { return scratch_level_; }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  std::int64_t num_bytes() const { return numbers_.num_bytes() + checksum_.num_bytes(); }

 private:
  void place_results();
  void choose_scratch();
  void launch(const RoutingTablePointers& tables, const GatheredRows& rows) const;

  StepPolicy policy_;
  Sizes sizes_;
  int team_size_;
  int scratch_level_ = 0;
  std::int64_t scratch_bytes_ = 0;
  std::int64_t num_counters_ = 0;
  RoutingResult result_{};
  Buffer<std::int32_t> numbers_;
  Buffer<std::uint64_t> checksum_;
};

}  // namespace metro
