// One routing step and what it must give: the policies of src/routing for who serves what, and for the lists their
// definitions, written out.
#pragma once

#include "kernels/routing.hpp"
#include "routing/batches.hpp"
#include "routing/instances.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro::test {

using Ids = std::vector<std::int32_t>;

struct StepProblem {
  std::int64_t num_experts = 0, num_ranks = 0;
  Ids slot_to_expert;
  Batch batch;

  std::int64_t slots_per_rank() const { return static_cast<std::int64_t>(slot_to_expert.size()) / num_ranks; }
  RoutingStep::Sizes sizes() const;
  RoutingTables tables(std::int64_t rank) const { return {slot_to_expert, num_experts, num_ranks, rank}; }
};

// A RoutingResult in host memory, cut to what is defined.
struct StepLists {
  Ids slots, rows_of_expert, expert_to_rank, activated, served_by_rank, lambda;
  Ids work_begin, work;
  Ids sent_begin, served, sent_rows;
  Ids returned_begin, returned_row;

  bool operator==(const StepLists&) const = default;
};

// The rows of a problem in memory of the execution space.
class DeviceRows {
 public:
  explicit DeviceRows(const StepProblem& problem);
  GatheredRows rows() const;

 private:
  std::int64_t num_rows_, top_k_;
  Buffer<std::int32_t> ids_, row_begin_;
};

StepLists expected_lists(StepPolicy policy, const StepProblem& problem, std::int64_t rank);
StepLists lists_of(const RoutingStep& step, const StepProblem& problem, std::int64_t rank);
std::uint64_t checksum_of(const RoutingStep& step);

// 1, 2, 4, ... up to what the execution space allows.
std::vector<int> team_sizes();

}  // namespace metro::test
