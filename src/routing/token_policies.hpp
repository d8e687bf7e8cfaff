// The token-granular policies that follow other systems: a replica for every assignment, from its place in the batch or
// from the rank its row comes from. Definitions and sources: docs/routing.md. (`even` is in policy.hpp.)
#pragma once

#include "routing/replica_map.hpp"

#include <cstdint>
#include <span>

namespace metro {

// In all of these: expert_ids [num_rows * top_k] in row order; an id outside 0..num_experts-1 (padding) gets slot -1.
// Writes slots [num_rows * top_k]. count = number of replicas (slots) of the assignment's expert.

// vLLM since September 2025: replica (row * top_k + column) mod count.
void route_vllm_modulo(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::span<std::int32_t> slots);

// vLLM since April 2026: replica (row * 2654435769 mod 2^32) mod count.
void route_vllm_knuth(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                      std::span<std::int32_t> slots);

// vLLM's first form: a replica at random, here from a hash of (key, first_row + row, column). See random_routing_key().
void route_vllm_random(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                       std::uint64_t key, std::uint64_t first_row, std::span<std::int32_t> slots);
// key of route_vllm_random() for one layer of one step.
std::uint64_t random_routing_key(std::uint64_t seed, std::int64_t step, std::int64_t layer);

// Where rows come from: row_to_rank [num_rows] and, for every rank, its node: rank_to_node [num_ranks].
struct RowSources {
  std::span<const std::int32_t> row_to_rank;
  std::span<const std::int32_t> rank_to_node;
};

// static: the replica on the row's own rank; else one of those on its node, else one of all, chosen by a hash of (rank,
// expert). Always the same replica for a rank and an expert.
void route_static(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                  const RowSources& sources, std::span<std::int32_t> slots);

// local: the replica on the row's own rank; else those on its node, else all, in turn: replica (start + n) mod their
// number for the n-th occurrence of the expert. start >= 0 as for `even`. occurrences [num_experts] is scratch.
void route_local(const ReplicaMap& map, std::span<const std::int32_t> expert_ids, std::int64_t top_k,
                 const RowSources& sources, std::int64_t start, std::span<std::int32_t> occurrences,
                 std::span<std::int32_t> slots);

}  // namespace metro
