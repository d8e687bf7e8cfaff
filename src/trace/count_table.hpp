// Count tables: published statistics that say only how often each expert was chosen. They are loads for placement, and
// a trace can be drawn from them whose experts have the same frequencies (its tokens are independent, unlike real
// ones).
#pragma once

#include "trace/routing_trace.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct CountTable {
  TraceModel model;
  std::vector<std::int64_t> counts;  // [layers, num_experts] how many tokens chose the expert
};

// Throws Error(input), beginning with `origin`, unless every layer counts the same whole number of tokens, that is a
// sum of top_k times that number, and no expert has more than one choice of each token.
void check_count_table(const CountTable& table, const std::string& origin);

struct DrawSettings {
  std::int64_t num_tokens = 16384;
  std::int64_t tokens_per_request = 128;  // the last request may be shorter
  std::uint64_t seed = 0;
};

// Decode tokens with top_k distinct experts in each layer; expert e is among them with probability exactly
// counts[e] / tokens (systematic sampling over a random order of the experts). Tokens and layers are independent.
RoutingTrace draw_trace(const CountTable& table, const DrawSettings& settings);

}  // namespace metro
