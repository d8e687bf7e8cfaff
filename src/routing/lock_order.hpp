// What the kernel of the METRO paper may do: every rank serves the experts in the order in which they get their locks,
// which nobody fixes. Simulated here to count on how many experts two ranks would disagree.
#pragma once

#include "routing/replica_map.hpp"

#include <cstdint>
#include <span>

namespace metro {

// Active experts in an order drawn from `seed`, each to the host with the fewest activated so far (tie: lowest rank).
// counts [num_experts] rows per expert; writes expert_to_rank [num_experts], -1 for experts without rows.
void route_in_lock_order(const ReplicaMap& map, std::span<const std::int32_t> counts, std::uint64_t seed,
                         std::span<std::int32_t> expert_to_rank);

}  // namespace metro
