// The table that explains a placement: load of every rank and node, expected lambda beside EPLB's and the bound, how
// many replicas experts have, bytes, and what one slot per rank more would buy.
#pragma once

#include "placement/activation_sample.hpp"
#include "placement/placement.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace metro {

struct ReportedPlacement {
  std::string name;                          // "activation-aware", "eplb", a file
  const Placement* placement = nullptr;      // what is explained
  const Placement* eplb = nullptr;           // with the same slots per rank, to compare with
  const Placement* with_one_more = nullptr;  // made as `placement` is, with one slot per rank more
  const ActivationSample* sample = nullptr;  // nullptr: no lambda is known
  std::vector<std::int64_t> loads;           // [num_layers, num_experts] tokens
  std::int64_t num_nodes = 1;                // rank r lies on node r * num_nodes / num_ranks
  std::vector<std::int64_t> bytes_of_rank;   // [num_ranks] of experts, or empty
};

// Tokens of a layer that each rank serves when every replica of an expert serves equally many, divided by the mean over
// ranks. [num_layers, num_ranks]; all 1 in a layer without load.
std::vector<double> relative_rank_loads(const Placement& placement, std::span<const std::int64_t> loads);

std::string placement_report(const ReportedPlacement& reported);

}  // namespace metro
