// From one placement to the next while a job runs: what stays where it is, and which weights travel from where.
// Pure functions of the two placements, so all ranks come to the same answer without asking each other.
#pragma once

#include "placement/placement.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Distinct experts of a rank's slots in one layer, ascending.
std::vector<std::int32_t> hosted_experts(const Placement& placement, std::int64_t moe_layer, std::int64_t rank);

// `next` with the slots of every rank in another order: an expert stays in a slot that it has in `now`, as often as the
// rank holds it in both; no order of the slots within the ranks changes fewer slots. The other experts of the rank take
// its other slots in ascending order of slots, in the order that they have in `next`. Both placements have one shape.
Placement keep_slots(const Placement& now, const Placement& next);

// Slots, over all layers, that hold something else in `next` than in `now`. Placements of one shape.
std::int64_t num_slots_changed(const Placement& now, const Placement& next);

// The weights of an expert of one layer travel from a rank that has them to a rank that will need them.
struct ExpertMove {
  std::int32_t expert = 0;
  std::int32_t from_rank = 0;
  std::int32_t to_rank = 0;

  bool operator==(const ExpertMove&) const = default;
};

// All moves of one layer, in ascending (to_rank, expert): every expert that a rank hosts in `next` but not in `now`
// comes to it once, from one of the ranks that host it in `now`. Sources are balanced: experts with the fewest hosts
// choose first, each takes the host that sends the fewest experts so far (tie: lowest rank). Every expert has a host in
// `now`.
std::vector<ExpertMove> plan_moves(const Placement& now, const Placement& next, std::int64_t moe_layer);

// How even the ranks are in one layer: mean / max over ranks of the rows that their slots get when the rows of an
// expert are spread evenly over its slots. loads [num_experts]. 1 is perfect; also when there are no rows at all.
double balancedness(const Placement& placement, std::int64_t moe_layer, std::span<const std::int64_t> loads);

}  // namespace metro
