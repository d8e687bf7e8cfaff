// Results of a replay as a table for the terminal, as JSON and as CSV, and routed batches as JSON lines. docs/replay.md
// has the columns.
#pragma once

#include "replay/replay.hpp"

#include <span>
#include <string>

namespace metro {

// One line per case, over all layers.
std::string replay_table(std::span<const ReplayResult> results);

// Everything: trace, settings, and per case the statistics overall and per layer.
std::string replay_json(const RoutingTrace& trace, const std::string& trace_path, const ReplaySettings& settings,
                        std::span<const ReplayResult> results);

// A header line; per case one line with layer "all" and one per layer of the model.
std::string replay_csv(const RoutingTrace& trace, const ReplaySettings& settings,
                       std::span<const ReplayResult> results);

// One JSON object without line feed. `layer` is the layer of the model.
std::string replayed_batch_json(const RoutingTrace& trace, const ReplayedBatch& routed);

}  // namespace metro
