#include "bench/synthetic_batches.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "routing/mixed_bits.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace metro {

namespace {

// The `number`-th number of the stream `key`, above 0 and below 1.
double uniform(std::uint64_t key, std::uint64_t number) {
  return (static_cast<double>(mixed_bits(key ^ number) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

std::vector<double> SyntheticBatches::log_popularity() const {
  const std::uint64_t key = mixed_bits(seed);
  std::vector<double> values(at(num_experts));
  for (std::size_t expert = 0; expert < values.size(); ++expert) {
    const double radius = std::sqrt(-2.0 * std::log(uniform(key, 2 * expert)));
    values[expert] = skew * radius * std::cos(2.0 * std::numbers::pi * uniform(key, 2 * expert + 1));
  }
  return values;
}

std::vector<std::int64_t> SyntheticBatches::loads() const {
  std::vector<double> weights = log_popularity();
  std::transform(weights.begin(), weights.end(), weights.begin(), [](double value) { return std::exp(value); });
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> loads;
  for (const double weight : weights) {
    loads.push_back(std::max<std::int64_t>(1, std::llround(weight / sum * 1e6)));
  }
  return loads;
}

std::vector<std::int32_t> SyntheticBatches::batch(std::int64_t number) const {
  METRO_REQUIRE(top_k >= 1 && top_k <= num_experts, "top_k");
  const std::vector<double> popularity = log_popularity();
  const std::uint64_t key = mixed_bits(mixed_bits(seed) + static_cast<std::uint64_t>(number) + 1);
  std::vector<double> score(popularity.size());
  std::vector<std::int32_t> order(popularity.size());
  std::vector<std::int32_t> expert_ids;
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    // The largest top_k of popularity plus Gumbel noise are a draw without replacement, in the order drawn.
    for (std::size_t expert = 0; expert < score.size(); ++expert) {
      const std::uint64_t draw = at(token) * score.size() + expert;
      score[expert] = popularity[expert] - std::log(-std::log(uniform(key, draw)));
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [&](std::int32_t a, std::int32_t b) { return score[at(a)] > score[at(b)]; });
    expert_ids.insert(expert_ids.end(), order.begin(), order.begin() + top_k);
  }
  return expert_ids;
}

}  // namespace metro
