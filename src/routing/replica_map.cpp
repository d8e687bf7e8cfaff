// Builds the tables of a ReplicaMap: a counting sort of the slots by expert, then hosts and masks from the slots.
#include "routing/replica_map.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace metro {

ReplicaMap::ReplicaMap(std::span<const std::int32_t> slot_to_expert, std::int64_t num_experts, std::int64_t num_ranks)
    : num_experts_(num_experts), num_ranks_(num_ranks) {
  METRO_REQUIRE(num_experts >= 1 && num_ranks >= 1, fmt::format("{} experts, {} ranks", num_experts, num_ranks));
  METRO_REQUIRE(std::ssize(slot_to_expert) % num_ranks == 0 &&
                    std::ssize(slot_to_expert) <= std::numeric_limits<std::int32_t>::max(),
                fmt::format("{} slots on {} ranks", slot_to_expert.size(), num_ranks));
  slots_per_rank_ = std::ssize(slot_to_expert) / num_ranks;
  num_mask_words_ = (num_ranks + 63) / 64;

  slot_begin_.assign(static_cast<std::size_t>(num_experts) + 1, 0);
  for (const std::int32_t expert : slot_to_expert) {
    METRO_REQUIRE(expert >= -1 && expert < num_experts, fmt::format("expert {} of {}", expert, num_experts));
    if (expert >= 0) {
      ++slot_begin_[static_cast<std::size_t>(expert) + 1];
    }
  }
  std::partial_sum(slot_begin_.begin(), slot_begin_.end(), slot_begin_.begin());
  slots_.resize(static_cast<std::size_t>(slot_begin_.back()));
  std::vector<std::int32_t> next(slot_begin_.begin(), slot_begin_.end() - 1);
  for (std::size_t slot = 0; slot < slot_to_expert.size(); ++slot) {
    if (slot_to_expert[slot] >= 0) {
      auto& position = next[static_cast<std::size_t>(slot_to_expert[slot])];
      slots_[static_cast<std::size_t>(position++)] = static_cast<std::int32_t>(slot);
    }
  }

  slot_to_rank_.reserve(slot_to_expert.size());
  for (std::int64_t slot = 0; slot < num_slots(); ++slot) {
    slot_to_rank_.push_back(static_cast<std::int32_t>(slot / slots_per_rank_));
  }

  host_begin_.reserve(slot_begin_.size());
  host_begin_.push_back(0);
  host_masks_.assign(static_cast<std::size_t>(num_experts * num_mask_words_), 0);
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    METRO_REQUIRE(!slots_of(expert).empty(), fmt::format("expert {} has no slot", expert));
    for (const std::int32_t slot : slots_of(expert)) {
      const std::int64_t rank = slot / slots_per_rank_;
      auto& word = host_masks_[static_cast<std::size_t>(expert * num_mask_words_ + rank / 64)];
      const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
      if ((word & bit) == 0) {
        word |= bit;
        hosts_.push_back(static_cast<std::int32_t>(rank));
      }
    }
    host_begin_.push_back(static_cast<std::int32_t>(hosts_.size()));
  }

  experts_by_scarcity_.resize(static_cast<std::size_t>(num_experts));
  std::iota(experts_by_scarcity_.begin(), experts_by_scarcity_.end(), 0);
  std::stable_sort(experts_by_scarcity_.begin(), experts_by_scarcity_.end(),
                   [this](std::int32_t a, std::int32_t b) { return hosts_of(a).size() < hosts_of(b).size(); });
}

}  // namespace metro
