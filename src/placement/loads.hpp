// Loads: how many tokens each expert received, per MoE layer; what place_eplb() plans with.
// File: {"num_experts": E, "loads": [[E integers] per MoE layer]}; further keys are ignored. See docs/placement.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// Returns loads [num_layers, num_experts] tokens, all >= 0.
// Throws Error(usage) naming the file, the key and what is wrong: missing key, wrong type, wrong number of layers or
// experts, a load that is not an integer of 0 or more.
std::vector<std::int64_t> read_loads(const std::string& path, std::int64_t num_layers, std::int64_t num_experts);

// A loads file of any model: loads [num_layers, num_experts].
struct LoadsFile {
  std::int64_t num_layers = 0;
  std::int64_t num_experts = 0;
  std::vector<std::int64_t> loads;
};

// Throws as above, and if there is no layer.
LoadsFile read_loads(const std::string& path);

}  // namespace metro
