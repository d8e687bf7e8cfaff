// The one rule all placement makers share: the slots of all ranks together must hold every expert once.
#pragma once

#include <cstdint>

namespace metro {

// Throws Error(usage) naming the smallest (or largest) slots_per_rank that works.
void check_slot_budget(std::int64_t num_experts, std::int64_t num_ranks, std::int64_t slots_per_rank);

}  // namespace metro
