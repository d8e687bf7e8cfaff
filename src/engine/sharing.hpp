// Whether the ranks of a node share what every rank needs. A rule without a clock, the same answer on all ranks.
#pragma once

#include "decoder/replicated_memory.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace metro {

// rank_to_node [num_ranks], nodes 0, 1, ... -> how many ranks are on the node of each rank. [num_ranks]
std::vector<std::int64_t> ranks_on_same_node(std::span<const std::int64_t> rank_to_node);

struct SharingFacts {
  bool in_host_memory = true;               // else each rank has it in the memory of its device
  std::int64_t num_bytes = 0;               // that every rank needs
  std::vector<std::int64_t> rank_to_node;   // [num_ranks]
  std::vector<std::int64_t> free_of_rank;   // [num_ranks] bytes that a rank may take, its share of its node
  std::vector<std::int64_t> room_for_rank;  // [num_ranks] bytes that the rank's node can share
};

struct SharingChoice {
  Sharing sharing = Sharing::per_rank;
  std::string reason;  // for the start-up table
};

// wish: model.sharing. Where a node has no room to share, each rank gets its own copy, also if the wish is "node".
SharingChoice choose_sharing(const std::string& wish, const SharingFacts& facts);

}  // namespace metro
