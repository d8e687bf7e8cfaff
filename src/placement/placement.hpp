// Placement: which expert sits in which slot of which rank, per MoE layer. Pure data and pure functions on the host.
#pragma once

#include "base/digest.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace metro {

struct Placement {
  static constexpr std::int32_t empty_slot = -1;

  std::int64_t num_layers = 0;  // MoE layers only, in model order
  std::int64_t num_experts = 0;
  std::int64_t num_ranks = 0;
  std::int64_t slots_per_rank = 0;
  std::vector<std::int32_t> slot_to_expert;  // [num_layers, num_ranks * slots_per_rank], rank-major; -1 = empty

  std::int64_t num_slots() const { return num_ranks * slots_per_rank; }
  // slot_to_expert of one layer, [num_ranks * slots_per_rank].
  std::span<const std::int32_t> layer(std::int64_t moe_layer) const {
    return std::span<const std::int32_t>(slot_to_expert)
        .subspan(static_cast<std::size_t>(moe_layer * num_slots()), static_cast<std::size_t>(num_slots()));
  }
  // Of which expert sits where: tells placements of one shape apart.
  Digest digest() const { return digest_of_values(std::span<const std::int32_t>(slot_to_expert)); }
};

// Slots per rank for a replication factor: ceil(num_experts * replication / num_ranks), and at least one.
// A product that is whole but for rounding counts as whole. Throws Error(usage) if replication < 1, not finite, or so
// large that slot ids (32-bit) would not suffice.
std::int64_t slots_for_replication(std::int64_t num_experts, std::int64_t num_ranks, double replication);

// Slot s of every layer holds expert s mod num_experts.
// Both makers throw Error(usage) if num_ranks * slots_per_rank < num_experts, naming the smallest slots_per_rank that
// works, or if it exceeds 2^31 - 1.
Placement place_trivial(std::int64_t num_layers, std::int64_t num_experts, std::int64_t num_ranks,
                        std::int64_t slots_per_rank);

// EPLB (deepseek-ai/EPLB). loads [num_layers, num_experts] tokens per expert, >= 0; an empty span means all equal.
// Hierarchical when num_groups > 1 and num_experts % num_groups, num_groups % num_nodes and num_ranks % num_nodes are
// all 0, else global. num_groups and num_nodes >= 1. All sorts are stable, ties go to the lower index, arithmetic in
// double (loads are exact up to 2^53); where all loads are zero the replicas are spread evenly. docs/placement.md.
Placement place_eplb(std::span<const std::int64_t> loads, std::int64_t num_layers, std::int64_t num_experts,
                     std::int64_t num_groups, std::int64_t num_nodes, std::int64_t num_ranks,
                     std::int64_t slots_per_rank);

// Placement files: JSON as in docs/placement.md (SGLang's key physical_to_logical_map).
// Throws Error(usage) naming the file and what is wrong: missing key, wrong length, expert out of range, an expert of
// some layer without any slot. Keys it does not know are ignored: other programs write more.
Placement read_placement(const std::string& path);
void write_placement(const Placement& placement, const std::string& path);

// Throws Error(usage) unless `placement` fits the model and the job and every expert has a slot in every layer.
// `origin` is named in the message.
void check_placement(const Placement& placement, std::int64_t num_layers, std::int64_t num_experts,
                     std::int64_t num_ranks, const std::string& origin);

}  // namespace metro
