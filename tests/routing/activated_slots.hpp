// What slots activate, counted from the slots alone: what tests compare a policy's own count with.
#pragma once

#include "base/error.hpp"
#include "routing/replica_map.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <vector>

namespace metro::test {

// Replicas in use: distinct slots among `slots` (-1 ignored), per rank; two slots of one expert count twice.
// [num_ranks]
inline std::vector<std::int32_t> activated_slots(const ReplicaMap& map, std::span<const std::int32_t> slots) {
  std::vector<bool> is_used(static_cast<std::size_t>(map.num_slots()), false);
  std::vector<std::int32_t> activated(static_cast<std::size_t>(map.num_ranks()), 0);
  for (const std::int32_t slot : slots) {
    METRO_REQUIRE(slot >= -1 && slot < map.num_slots(), fmt::format("slot {} of {}", slot, map.num_slots()));
    if (slot >= 0 && !is_used[static_cast<std::size_t>(slot)]) {
      is_used[static_cast<std::size_t>(slot)] = true;
      ++activated[static_cast<std::size_t>(slot / map.slots_per_rank())];
    }
  }
  return activated;
}

}  // namespace metro::test
