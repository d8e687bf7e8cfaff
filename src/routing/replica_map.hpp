// The hosts of every expert of one layer, derived once from a placement: what all routing policies read.
#pragma once

#include "base/held_bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class ReplicaMap {
 public:
  // slot_to_expert [num_ranks * slots_per_rank], rank-major; -1 = empty slot. Every expert has at least one slot.
  ReplicaMap(std::span<const std::int32_t> slot_to_expert, std::int64_t num_experts, std::int64_t num_ranks);

  std::int64_t num_experts() const { return num_experts_; }
  std::int64_t num_ranks() const { return num_ranks_; }
  std::int64_t slots_per_rank() const { return slots_per_rank_; }
  std::int64_t num_slots() const { return num_ranks_ * slots_per_rank_; }
  std::int64_t num_mask_words() const { return num_mask_words_; }

  // Slots of expert e, ascending. Several may lie on one rank.
  std::span<const std::int32_t> slots_of(std::int64_t expert) const { return part_of(slots_, slot_begin_, expert); }
  // Ranks that hold expert e, ascending, each once.
  std::span<const std::int32_t> hosts_of(std::int64_t expert) const { return part_of(hosts_, host_begin_, expert); }
  // Where hosts_of(e) begins when the hosts of all experts stand one behind the other; e = num_experts gives their
  // number.
  std::int64_t host_begin(std::int64_t expert) const { return host_begin_[static_cast<std::size_t>(expert)]; }
  std::int32_t rank_of_slot(std::int64_t slot) const { return slot_to_rank_[static_cast<std::size_t>(slot)]; }
  // The lowest slot of expert e on a rank; -1 if that rank does not hold it.
  std::int32_t slot_on_rank(std::int64_t expert, std::int64_t rank) const {
    for (const std::int32_t slot : slots_of(expert)) {
      if (rank_of_slot(slot) == rank) {
        return slot;
      }
    }
    return -1;
  }
  // The same ranks as a bit mask: bit r % 64 of word r / 64. [num_mask_words]
  std::span<const std::uint64_t> host_mask_of(std::int64_t expert) const {
    return std::span(host_masks_)
        .subspan(static_cast<std::size_t>(expert * num_mask_words_), static_cast<std::size_t>(num_mask_words_));
  }
  // Memory held.
  std::int64_t num_bytes() const {
    return held_bytes(slot_begin_, slots_, host_begin_, hosts_, slot_to_rank_, experts_by_scarcity_) +
           held_bytes(host_masks_);
  }
  // Experts in ascending (number of hosts, id): the order of metro-scarce. [num_experts]
  std::span<const std::int32_t> experts_by_scarcity() const { return experts_by_scarcity_; }

 private:
  static std::span<const std::int32_t> part_of(const std::vector<std::int32_t>& values,
                                               const std::vector<std::int32_t>& begin, std::int64_t expert) {
    const auto idx = static_cast<std::size_t>(expert);
    return {values.data() + begin[idx], values.data() + begin[idx + 1]};
  }

  std::int64_t num_experts_ = 0;
  std::int64_t num_ranks_ = 0;
  std::int64_t slots_per_rank_ = 0;
  std::int64_t num_mask_words_ = 0;
  std::vector<std::int32_t> slot_begin_, slots_;  // slots_of(e) = slots_[slot_begin_[e] .. slot_begin_[e + 1])
  std::vector<std::int32_t> host_begin_, hosts_;  // likewise
  std::vector<std::int32_t> slot_to_rank_;        // [num_slots]
  std::vector<std::uint64_t> host_masks_;         // [num_experts, num_mask_words]
  std::vector<std::int32_t> experts_by_scarcity_;
};

}  // namespace metro
