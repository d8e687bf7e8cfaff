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

struct RunLimits {
  DecoderLimits decoder;
  SchedulerLimits scheduler;
  SharingChoice sharing;
  std::string decode;                      // how decode runs on a device, for the start-up table; else empty
  std::vector<MemoryPlan> memory_of_rank;  // [num_ranks]
  std::vector<std::int64_t> free_of_rank;  // [num_ranks] bytes that a rank may take, its share of its node
};

// Collective. Throws AgreedError(usage) when something does not fit, saying what would.
RunLimits make_limits(const Deck& deck, const CheckpointReader& checkpoint, const Placement& placement,
                      const RoutingSettings& routing, const JobContext& job, Transport& transport);

}  // namespace metro
