// Three ideas keep this fast for large vocabularies. All cuts are cuts of one descending order (value, then lower id),
// of which only as much is sorted as is looked at: a few hundred tokens, as a rule. The sum over many tokens is taken
// in the order of ids. Sums are in double; no library function but the sort is involved, and all keys differ.
#include "sampling/token_choice.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "kernels/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace metro {

double uniform_number(std::uint64_t seed, std::int32_t sample_index, std::int64_t position) {
  const std::uint64_t key[] = {seed, static_cast<std::uint64_t>(sample_index), static_cast<std::uint64_t>(position)};
  return static_cast<double>(digest_of_values(std::span<const std::uint64_t>(key)) >> 11U) * 0x1p-53;
}

TokenChooser::TokenChooser(std::int64_t vocab_size)
    : weights_("sampling weights", vocab_size), codes_("sampling order", vocab_size) {}

std::int32_t TokenChooser::choose(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  METRO_REQUIRE(logits.size() == weights_.span().size(), "logits of another vocabulary");
  METRO_REQUIRE(uniform >= 0.0 && uniform < 1.0, fmt::format("{}", uniform));
  const std::int64_t vocab = weights_.size();
  sampling_weights(logits.data(), 1, vocab, options.temperature, weights_.kernels());
  order_codes(logits.data(), 1, vocab, codes_.kernels());
  weights_.to_host(vocab);
  codes_.to_host(vocab);
  wait_for_kernels();
  num_sorted_ = 0;

  const std::size_t count = num_candidates(options);
  const double mass = mass_of(count);

  // top_p: the fewest whose weights reach the share.
  std::size_t num_kept = count;
  double kept_mass = mass;
  if (options.top_p < 1.0) {
    const double share = options.top_p * mass;
    kept_mass = 0.0;
    for (num_kept = 0; num_kept < count && (num_kept == 0 || kept_mass < share); ++num_kept) {
      kept_mass += weight_at(num_kept);
    }
  }

  const double target = uniform * kept_mass;
  double sum = 0.0;
  std::size_t last_possible = 0;  // rounding may leave the sum below the target
  for (std::size_t place = 0; place < num_kept; ++place) {
    const double weight = weight_at(place);
    sum += weight;
    if (sum > target) {
      return id_at(place);
    }
    last_possible = weight > 0.0 ? place : last_possible;
  }
  return id_at(last_possible);
}

// How many of the order min_p and top_k leave; at least one.
std::size_t TokenChooser::num_candidates(const SamplingOptions& options) {
  auto count = static_cast<std::size_t>(weights_.size());
  if (options.top_k > 0) {
    count = std::min(count, static_cast<std::size_t>(options.top_k));
  }
  if (options.min_p > 0.0) {
    std::size_t num_likely = 0;
    while (num_likely < count && weight_at(num_likely) >= options.min_p) {
      ++num_likely;
    }
    count = std::max<std::size_t>(1, num_likely);
  }
  return count;
}

// Sum of the weights of the first num_candidates, in the order of their ids.
double TokenChooser::mass_of(std::size_t num_candidates) {
  double mass = 0.0;
  if (num_candidates == weights_.span().size()) {
    for (const float weight : weights_.span()) {
      mass += static_cast<double>(weight);
    }
    return mass;
  }
  sort_further(num_candidates - 1);
  std::vector<std::int32_t> ids;
  for (std::size_t place = 0; place < num_candidates; ++place) {
    ids.push_back(id_at(place));
  }
  std::sort(ids.begin(), ids.end());
  for (const std::int32_t id : ids) {
    mass += static_cast<double>(weights_[id]);
  }
  return mass;
}

std::int32_t TokenChooser::id_at(std::size_t place) {
  if (place >= num_sorted_) {
    sort_further(place);
  }
  return id_of_order_code(codes_[static_cast<std::int64_t>(place)]);
}

// Sorts on until `place` is among the sorted: at least 256 at first, then eight times as many as before.
void TokenChooser::sort_further(std::size_t place) {
  const auto codes = codes_.span();
  METRO_REQUIRE(place < codes.size(), fmt::format("place {}", place));
  while (num_sorted_ <= place) {
    const std::size_t end = std::min(codes.size(), std::max<std::size_t>(256, 8 * num_sorted_));
    const auto first = codes.begin() + static_cast<std::ptrdiff_t>(num_sorted_);
    const auto last = codes.begin() + static_cast<std::ptrdiff_t>(end);
    if (last != codes.end()) {
      std::nth_element(first, last, codes.end(), std::greater<>());
    }
    std::sort(first, last, std::greater<>());
    num_sorted_ = end;
  }
}

}  // namespace metro
