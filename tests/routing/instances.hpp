// Routing problems for the tests: random ones, and plain statements about a routing that do not use the product code.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace metro::test {

struct Instance {
  std::int64_t num_experts = 0;
  std::int64_t num_ranks = 0;
  std::vector<std::int32_t> slot_to_expert;  // [num_ranks * slots_per_rank]
  std::vector<std::int32_t> counts;          // [num_experts]

  // Ranks that hold the expert, ascending, each once.
  std::vector<std::int32_t> hosts_of(std::size_t expert) const;
  std::vector<std::size_t> active_experts() const;
};

struct Size {
  std::int64_t num_experts, num_ranks, slots_per_rank;
};

// Every expert in one random slot, the others random; a share of those stays empty. About active_share of the experts
// have rows.
Instance random_instance(const Size& size, double empty_share, double active_share, std::mt19937_64& random);

// counts of a batch whose tokens choose top_k distinct experts each, expert e with weight exp(skew * normal).
std::vector<std::int32_t> random_counts(std::int64_t num_experts, std::int64_t num_tokens, std::int64_t top_k,
                                        double skew, std::mt19937_64& random);

// Active experts per rank; fails the running test if one is not on one of its hosts or an idle one is on a rank.
std::vector<std::int32_t> checked_activated(const Instance& instance, std::span<const std::int32_t> expert_to_rank);

// In [0, 1), the same on every platform.
double uniform(std::mt19937_64& random);

}  // namespace metro::test
