// From deck, model and memory to what every rank allocates: slots, context, KV blocks. Agreed by all ranks.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "deck/deck.hpp"
#include "decoder/decoder.hpp"
#include "decoder/row_batch.hpp"
#include "engine/job.hpp"
#include "engine/rebalancer.hpp"
#include "engine/sharing.hpp"
#include "placement/placement.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// Collective. The placement that the deck asks for; files are read and loads balanced on rank 0 only.
Placement make_placement(const Deck& deck, const ModelSpec& spec, const JobContext& job, Transport& transport);

// What makes the placements of a job that rebalances: EPLB, with the slots of the first one.
PlacementMaker placement_maker(const ModelSpec& spec, const JobContext& job, const Placement& first);

// Of what is left beside weights and buffers, the KV cache takes this share unless kv.memory says otherwise; the rest
// is for MPI, the tokenizer, requests and the page cache.
inline constexpr double kv_share = 0.8;

// Expert slots of a rank: experts.slots_per_rank, or else what experts.replication comes to.
std::int64_t slots_per_rank_of(const Deck& deck, std::int64_t num_experts, std::int64_t num_ranks);

// KV blocks of a rank that has `left` bytes beside weights and buffers: what the batch can use at most, within
// kv.memory or the share above.
struct KvRoom {
  std::int64_t budget;               // bytes
  std::int64_t blocks_per_sequence;  // of `context` positions
  std::int64_t blocks;

  bool holds_a_sequence() const { return blocks >= blocks_per_sequence; }
};
KvRoom kv_room(const Deck& deck, std::int64_t context, std::int64_t block_bytes, std::int64_t left);

// What the deck says and what follows from it, without what is agreed later: KV blocks, and how decode and prefill run
// on a device. pads_decode: kernels have memory of their own, where a step of decode may be padded.
DecoderLimits decoder_limits(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks, bool pads_decode);

struct RunLimits {
  DecoderLimits decoder;
  SchedulerLimits scheduler;
  SharingChoice sharing;
  std::string decode;                      // how decode runs on a device, for the start-up table; else empty
  std::string prefill;                     // how its experts are computed, if not as those of decode; else empty
  std::vector<MemoryPlan> memory_of_rank;  // [num_ranks]
  std::vector<std::int64_t> free_of_rank;  // [num_ranks] bytes that a rank may take, its share of its node
};

// Collective. Throws AgreedError(usage) when something does not fit, saying what would.
RunLimits make_limits(const Deck& deck, const CheckpointReader& checkpoint, const Placement& placement,
                      const RoutingSettings& routing, const JobContext& job, Transport& transport);

}  // namespace metro
