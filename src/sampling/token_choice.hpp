// Choosing a token at random: the same token for the same logits, options and position, on every machine and whatever
// else runs. docs/numerics.md has the definition.
#pragma once

#include "kernels/mirror.hpp"
#include "requests/sampling_options.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// A number from [0, 1), a multiple of 2^-53: a function of its arguments alone. position: of the token in its sequence.
double uniform_number(std::uint64_t seed, std::int32_t sample_index, std::int64_t position);

class TokenChooser {
 public:
  explicit TokenChooser(std::int64_t vocab_size);

  // A token with probability proportional to w = exp((l - max l) / temperature) among those that min_p, top_k and then
  // top_p leave; `uniform` from [0, 1) decides which. options.temperature > 0. logits [vocab], memory of
  // kernels; the host sorts, so that weights and codes come to it. Waits for the kernels.
  std::int32_t choose(std::span<const float> logits, const SamplingOptions& options, double uniform);

 private:
  std::int32_t id_at(std::size_t place);
  double weight_at(std::size_t place) { return static_cast<double>(weights_[id_at(place)]); }
  std::size_t num_candidates(const SamplingOptions& options);
  double mass_of(std::size_t num_candidates);
  void sort_further(std::size_t place);

  Mirror<float> weights_;        // [vocab]
  Mirror<std::uint64_t> codes_;  // [vocab]; on the host the first num_sorted_ are the largest, in descending order
  std::size_t num_sorted_ = 0;
};

}  // namespace metro
