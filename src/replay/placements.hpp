// The placements of a sweep: made for a number of ranks and a replication, or read from a file.
#pragma once

#include "placement/placement.hpp"
#include "plan/batch_sample.hpp"
#include "trace/requests_of_trace.hpp"
#include "trace/routing_trace.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace metro {

// How `activation-aware` is searched for.
struct PlacementSearch {
  BatchSampleSettings sample;
  std::int64_t moves_per_slot = 0;
};

bool is_placement_file(const std::string& name);

// `name` at one rank count: one placement per replication (those that round to the same slots per rank only once), or
// the file, if it is for so many ranks. plan_on: the requests that `eplb` and `activation-aware` are made from. All
// layers of the trace. Throws Error(usage).
std::vector<Placement> placements_named(const std::string& name, const RoutingTrace& trace,
                                        std::span<const RequestRows> plan_on, std::int64_t num_ranks,
                                        std::span<const double> replications, const PlacementSearch& search);

// Throws Error(usage) if a placement file is for a number of ranks that is not among these.
void require_used(const std::string& file, std::span<const std::int64_t> rank_counts);

}  // namespace metro
