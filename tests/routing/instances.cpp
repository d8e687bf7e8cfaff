#include "routing/instances.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

namespace metro::test {

std::vector<std::int32_t> Instance::hosts_of(std::size_t expert) const {
  const auto slots_per_rank = slot_to_expert.size() / static_cast<std::size_t>(num_ranks);
  std::set<std::int32_t> hosts;
  for (std::size_t slot = 0; slot < slot_to_expert.size(); ++slot) {
    if (slot_to_expert[slot] == static_cast<std::int32_t>(expert)) {
      hosts.insert(static_cast<std::int32_t>(slot / slots_per_rank));
    }
  }
  return {hosts.begin(), hosts.end()};
}

std::vector<std::size_t> Instance::active_experts() const {
  std::vector<std::size_t> active;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > 0) {
      active.push_back(expert);
    }
  }
  return active;
}

double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

Instance random_instance(const Size& size, double empty_share, double active_share, std::mt19937_64& random) {
  Instance instance{size.num_experts, size.num_ranks, {}, {}};
  for (std::int64_t slot = 0; slot < size.num_ranks * size.slots_per_rank; ++slot) {
    const bool is_empty = uniform(random) < empty_share;
    const auto any = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(size.num_experts));
    instance.slot_to_expert.push_back(slot < size.num_experts ? static_cast<std::int32_t>(slot) : is_empty ? -1 : any);
  }
  for (std::size_t slot = instance.slot_to_expert.size(); slot > 1; --slot) {
    std::swap(instance.slot_to_expert[slot - 1], instance.slot_to_expert[random() % slot]);
  }
  for (std::int64_t expert = 0; expert < size.num_experts; ++expert) {
    instance.counts.push_back(uniform(random) < active_share ? static_cast<std::int32_t>(1 + random() % 9) : 0);
  }
  return instance;
}

std::vector<std::int32_t> random_counts(std::int64_t num_experts, std::int64_t num_tokens, std::int64_t top_k,
                                        double skew, std::mt19937_64& random) {
  std::vector<double> log_weight(static_cast<std::size_t>(num_experts));
  for (double& value : log_weight) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(random)));
    value = skew * radius * std::cos(2.0 * std::numbers::pi * uniform(random));
  }
  std::vector<std::int32_t> counts(log_weight.size(), 0);
  std::vector<double> score(log_weight.size());
  std::vector<std::size_t> order(log_weight.size());
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    // The largest top_k of weight plus Gumbel noise are a draw without replacement.
    std::transform(log_weight.begin(), log_weight.end(), score.begin(),
                   [&](double weight) { return weight - std::log(-std::log(1.0 - uniform(random) * 0.999999999)); });
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::nth_element(order.begin(), order.begin() + top_k - 1, order.end(),
                     [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    std::for_each(order.begin(), order.begin() + top_k, [&](std::size_t expert) { ++counts[expert]; });
  }
  return counts;
}

std::vector<std::int32_t> checked_activated(const Instance& instance, std::span<const std::int32_t> expert_to_rank) {
  REQUIRE(expert_to_rank.size() == instance.counts.size());
  const auto slots_per_rank = instance.slot_to_expert.size() / static_cast<std::size_t>(instance.num_ranks);
  std::vector<std::int32_t> activated(static_cast<std::size_t>(instance.num_ranks), 0);
  bool is_valid = true;
  for (std::size_t expert = 0; expert < instance.counts.size(); ++expert) {
    const std::int32_t rank = expert_to_rank[expert];
    const bool is_active = instance.counts[expert] > 0;
    if (!is_active || rank < 0 || rank >= instance.num_ranks) {
      is_valid = is_valid && !is_active && rank == -1;
      continue;
    }
    const auto first = instance.slot_to_expert.begin() + static_cast<std::ptrdiff_t>(slots_per_rank) * rank;
    const auto last = first + static_cast<std::ptrdiff_t>(slots_per_rank);
    is_valid = is_valid && std::find(first, last, static_cast<std::int32_t>(expert)) != last;
    ++activated[static_cast<std::size_t>(rank)];
  }
  REQUIRE(is_valid);
  return activated;
}

}  // namespace metro::test
