// The exact distribution that sampling options define, by brute force in double precision; and a choice from logits of
// the test.
#pragma once

#include "requests/sampling_options.hpp"
#include "sampling/token_choice.hpp"
#include "support/kernel_memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace metro::test {

inline std::int32_t choose(TokenChooser& chooser, const std::vector<float>& logits, const SamplingOptions& options,
                           double uniform) {
  const Buffer<float> memory = kernel_copy(logits);
  return chooser.choose({memory.data(), logits.size()}, options, uniform);
}

struct Distribution {
  std::vector<std::int32_t> order;    // all tokens, likeliest first, lower id first among equals
  std::vector<double> probabilities;  // [vocab]; 0 for what min_p, top_k or top_p cuts off
};

inline Distribution exact_distribution(const std::vector<float>& logits, const SamplingOptions& options) {
  Distribution result;
  result.order.resize(logits.size());
  std::iota(result.order.begin(), result.order.end(), 0);
  const auto logit = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  std::stable_sort(result.order.begin(), result.order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  std::vector<double> kept;
  for (const std::int32_t id : result.order) {
    kept.push_back(std::exp((logit(id) - logit(result.order[0])) / options.temperature));
  }
  kept.erase(std::remove_if(kept.begin(), kept.end(), [&](double weight) { return weight < options.min_p; }),
             kept.end());
  if (options.top_k > 0) {
    kept.resize(std::min(kept.size(), static_cast<std::size_t>(options.top_k)));
  }
  const double total = std::accumulate(kept.begin(), kept.end(), 0.0);
  double before = 0.0;
  std::size_t num_kept = 0;
  while (num_kept < kept.size() && (num_kept == 0 || options.top_p == 1.0 || before < options.top_p * total)) {
    before += kept[num_kept++];
  }
  result.probabilities.assign(logits.size(), 0.0);
  for (std::size_t i = 0; i < num_kept; ++i) {
    result.probabilities[static_cast<std::size_t>(result.order[i])] = kept[i] / before;
  }
  return result;
}

}  // namespace metro::test
