// Memory and launch of the routing step.
#include "kernels/routing.hpp"

#include "base/error.hpp"
#include "kernels/portable/kokkos_compat.hpp"
#include "kernels/portable/routing_step.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

namespace metro {

using namespace portable;

namespace {

constexpr std::int64_t level_0_bytes = std::int64_t{48} << 10;
// More chunks than that would not be waited for, but would have to be added up.
constexpr std::int64_t most_chunks = 64;
constexpr std::int64_t alignment_bytes = 64;  // what team scratch may lose at its beginning

using TeamPolicy = Kokkos::TeamPolicy<Execution>;
using Kernel = RoutingKernel<Execution>;

std::int64_t near_bytes() {
  return std::min<std::int64_t>(level_0_bytes, TeamPolicy::scratch_size_max(0));
}

// Reductions of a team ask for powers of two on some devices.
int power_of_two_up_to(int most) {
  int size = 1;
  while (2 * size <= most) {
    size *= 2;
  }
  return size;
}

TeamPolicy policy_with_near_scratch() {
  TeamPolicy policy(1, Kokkos::AUTO);
  policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(near_bytes())));
  return policy;
}

int default_team_size() {
  if (std::is_same_v<Memory, Kokkos::HostSpace>) {
    return 1;
  }
  return power_of_two_up_to(policy_with_near_scratch().team_size_recommended(Kernel{}, Kokkos::ParallelForTag()));
}

}  // namespace

RoutingStep::RoutingStep(StepPolicy policy, const Sizes& sizes, int team_size)
    : policy_(policy), sizes_(sizes), team_size_(team_size > 0 ? team_size : default_team_size()) {
  METRO_REQUIRE(sizes.num_experts >= 1 && sizes.num_ranks >= 1 && sizes.slots_per_rank >= 1,
                std::to_string(sizes.num_experts) + " experts, " + std::to_string(sizes.num_ranks) + " ranks of " +
                    std::to_string(sizes.slots_per_rank) + " slots");
  METRO_REQUIRE(sizes.max_assignments >= 0 && sizes.max_assignments <= std::numeric_limits<std::int32_t>::max(),
                std::to_string(sizes.max_assignments) + " assignments");
  METRO_REQUIRE(team_size >= 0 && team_size <= max_team_size(), "team of " + std::to_string(team_size));
  place_results();
  choose_scratch();
  launch({}, {});  // has the team scratch allocated
}

int RoutingStep::max_team_size() {
  return power_of_two_up_to(policy_with_near_scratch().team_size_max(Kernel{}, Kokkos::ParallelForTag()));
}

namespace {

// In RoutingResult, but for the checksum.
std::int64_t num_result_numbers(const RoutingStep::Sizes& sizes) {
  return 2 * sizes.num_experts + 2 * sizes.num_ranks + 2 * (sizes.num_ranks + 1) + (sizes.slots_per_rank + 1) + 1 +
         5 * sizes.max_assignments;
}

}  // namespace

std::int64_t RoutingStep::planned_bytes(const Sizes& sizes) {
  return num_result_numbers(sizes) * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         static_cast<std::int64_t>(sizeof(std::uint64_t));
}

void RoutingStep::place_results() {
  const auto [num_experts, num_ranks, slots_per_rank, max_assignments] = sizes_;
  numbers_ = Buffer<std::int32_t>("routing results", num_result_numbers(sizes_));
  checksum_ = Buffer<std::uint64_t>("routing checksum", 1);
  std::int32_t* next = numbers_.data();
  const auto take = [&](std::int32_t*& part, std::int64_t size) {
    part = next;
    next += size;
  };
  // What a host needs to send and receive lies together.
  take(result_.lambda, 1);
  take(result_.activated, num_ranks);
  take(result_.served_by_rank, num_ranks);
  take(result_.sent_begin, num_ranks + 1);
  take(result_.returned_begin, num_ranks + 1);
  take(result_.work_begin, slots_per_rank + 1);
  take(result_.rows_of_expert, num_experts);
  take(result_.expert_to_rank, num_experts);
  take(result_.slots, max_assignments);
  take(result_.work, max_assignments);
  take(result_.served, max_assignments);
  take(result_.sent_rows, max_assignments);
  take(result_.returned_row, max_assignments);
  result_.checksum = checksum_.data();
}

// Level 0 if one chunk of counters fits beside the rest, with as many more as fit; else all in level 1.
void RoutingStep::choose_scratch() {
  const auto bytes_with = [&](std::int64_t num_counters) {
    const RoutingScratch scratch(nullptr, policy_, sizes_.num_experts, sizes_.num_ranks, sizes_.slots_per_rank,
                                 num_counters);
    return scratch.num_bytes + alignment_bytes;
  };
  // Keys are experts (of `even`), own slots and ranks.
  const std::int64_t num_experts = policy_ == StepPolicy::even ? sizes_.num_experts : 1;
  const std::int64_t counters_of_chunk = std::max({num_experts, sizes_.num_ranks, sizes_.slots_per_rank});
  const std::int64_t wanted_chunks = std::min<std::int64_t>(team_size_, most_chunks);
  const std::int64_t left = near_bytes() - bytes_with(0);
  const std::int64_t chunk_bytes = counters_of_chunk * static_cast<std::int64_t>(sizeof(std::int32_t));
  scratch_level_ = left >= chunk_bytes ? 0 : 1;
  num_counters_ =
      counters_of_chunk * (scratch_level_ == 0 ? std::min(wanted_chunks, left / chunk_bytes) : wanted_chunks);
  scratch_bytes_ = bytes_with(num_counters_);
  METRO_REQUIRE(scratch_bytes_ <= TeamPolicy::scratch_size_max(scratch_level_),
                std::to_string(scratch_bytes_) + " bytes of team scratch");
}

void RoutingStep::launch(const RoutingTablePointers& tables, const GatheredRows& rows) const {
  TeamPolicy policy(execution(), 1, team_size_);
  policy.set_scratch_size(scratch_level_, Kokkos::PerTeam(static_cast<int>(scratch_bytes_)));
  portable::launch(
      "routing_step", policy,
      Kernel{policy_, tables, rows, result_, scratch_level_, scratch_bytes_ - alignment_bytes, num_counters_});
}

void RoutingStep::route(const RoutingTables& tables, const GatheredRows& rows) {
  const RoutingTablePointers& pointers = tables.pointers();
  METRO_REQUIRE(pointers.num_experts == sizes_.num_experts && pointers.num_ranks == sizes_.num_ranks &&
                    pointers.slots_per_rank == sizes_.slots_per_rank,
                "tables of another model or placement");
  METRO_REQUIRE(rows.num_rows >= 0 && rows.top_k >= 1 && rows.num_rows * rows.top_k <= sizes_.max_assignments,
                std::to_string(rows.num_rows) + " rows of " + std::to_string(rows.top_k));
  METRO_REQUIRE(rows.row_begin != nullptr, "no row_begin");
  require_kernel_memory("routing_step", {{"expert_ids", rows.expert_ids}, {"row_begin", rows.row_begin}});
  launch(pointers, rows);
}

}  // namespace metro
