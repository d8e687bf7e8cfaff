// Replay: batches drawn from a routing trace, routed by every policy over every placement, and what that activates.
// Nothing is computed but the routing, so that claims about routing can be checked on any machine. docs/replay.md.
#pragma once

#include "replay/routing_statistics.hpp"
#include "routing/policy.hpp"
#include "trace/batches.hpp"
#include "trace/requests_of_trace.hpp"
#include "trace/routing_trace.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace metro {

struct ReplaySettings {
  std::vector<std::string> placements;  // "trivial", "eplb", "activation-aware", or a placement file
  std::vector<RoutingPolicy> policies;
  std::vector<std::int64_t> batch_sizes;  // sequences of all ranks together
  std::vector<std::int64_t> rank_counts;
  std::vector<double> replications;     // for all placements but files, which have their own
  std::vector<std::int64_t> layers;     // indices into TraceModel::layers, ascending
  std::int64_t num_plan_steps = 12000;  // steps that `activation-aware` is planned for, of all batch sizes together
  std::int64_t moves_per_slot = 200;    // length of its search
  std::int64_t num_draws = 200;         // batches per batch size
  std::int64_t stride = 16;             // steps from one drawn batch to the next
  std::uint64_t seed = 0;
  TraceRows rows = TraceRows::decode;
  TraceRequests plan_on = TraceRequests::even;  // requests that placements are made from
  TraceRequests judge_on = TraceRequests::odd;  // requests that batches are drawn from
};

// One point of the sweep.
struct ReplayCase {
  std::string placement;
  double replication = 0.0;  // slots / experts
  std::int64_t slots_per_rank = 0;
  std::int64_t num_ranks = 0;
  std::int64_t batch_size = 0;
  RoutingPolicy policy = RoutingPolicy::exact;
};

struct ReplayResult {
  ReplayCase replayed;
  std::vector<RoutingStatistics> layers;  // of ReplaySettings::layers
  RoutingStatistics overall;              // over all of them
};

// One batch in one layer under one policy, as it was routed: enough to check it with other tools.
struct ReplayedBatch {
  const ReplayCase& replayed;
  std::int64_t layer;  // index into TraceModel::layers
  std::int64_t draw;
  const TraceBatch& batch;
  std::span<const std::int32_t> topk_idx;        // [batch, top_k]
  std::span<const std::int32_t> slot_to_expert;  // [num_ranks * slots_per_rank]
  std::span<const std::int32_t> slots;           // [batch, top_k] the slot that serves each assignment
  std::span<const std::int32_t> activated;       // [num_ranks]
  std::int32_t optimum;
};
using ReplayObserver = std::function<void(const ReplayedBatch&)>;

// Results in the order placement, rank count, replication, batch size, policy. All policies of a batch size see the
// same batches, whatever the placement. Throws Error(usage) when a placement does not fit, or a batch needs more
// requests than there are. Deterministic, but for the microseconds. `observe` may be empty.
std::vector<ReplayResult> replay(const RoutingTrace& trace, const ReplaySettings& settings,
                                 const ReplayObserver& observe);

// The trace rows that batches are drawn from or loads are counted over. Throws Error(usage) if there are none.
std::vector<RequestRows> require_requests(const RoutingTrace& trace, TraceRows rows, TraceRequests requests);

}  // namespace metro
