#include "placement/activation_sample.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <bit>

namespace metro {

ActivationSample::ActivationSample(std::int64_t num_steps, std::int64_t num_layers, std::int64_t num_experts)
    : num_steps_(num_steps),
      num_layers_(num_layers),
      num_experts_(num_experts),
      num_words_(ceil_div(num_experts, 64)),
      words_(at(num_layers * num_steps * num_words_)) {
  METRO_REQUIRE(num_steps >= 0 && num_layers >= 1 && num_experts >= 1,
                fmt::format("{} steps, {} layers, {} experts", num_steps, num_layers, num_experts));
}

std::size_t ActivationSample::word_of(std::int64_t step, std::int64_t moe_layer, std::int64_t expert) const {
  METRO_REQUIRE(step >= 0 && step < num_steps_, fmt::format("step {} of {}", step, num_steps_));
  METRO_REQUIRE(moe_layer >= 0 && moe_layer < num_layers_, fmt::format("layer {} of {}", moe_layer, num_layers_));
  METRO_REQUIRE(expert >= 0 && expert < num_experts_, fmt::format("expert {} of {}", expert, num_experts_));
  return at((moe_layer * num_steps_ + step) * num_words_ + expert / 64);
}

void ActivationSample::set_active(std::int64_t step, std::int64_t moe_layer, std::int64_t expert) {
  words_[word_of(step, moe_layer, expert)] |= std::uint64_t{1} << (expert % 64);
}

bool ActivationSample::is_active(std::int64_t step, std::int64_t moe_layer, std::int64_t expert) const {
  return (words_[word_of(step, moe_layer, expert)] >> (expert % 64) & 1) != 0;
}

std::vector<std::int32_t> ActivationSample::active_experts(std::int64_t step, std::int64_t moe_layer) const {
  const std::size_t first_word = word_of(step, moe_layer, 0);
  std::vector<std::int32_t> experts;
  for (std::int64_t word_idx = 0; word_idx < num_words_; ++word_idx) {
    for (std::uint64_t bits = words_[first_word + at(word_idx)]; bits != 0; bits &= bits - 1) {
      experts.push_back(static_cast<std::int32_t>(word_idx * 64) + std::countr_zero(bits));
    }
  }
  return experts;
}

std::vector<std::int64_t> ActivationSample::steps_of_experts(std::int64_t moe_layer) const {
  std::vector<std::int64_t> steps(at(num_experts_), 0);
  for (std::int64_t step = 0; step < num_steps_; ++step) {
    for (const std::int32_t expert : active_experts(step, moe_layer)) {
      ++steps[at(expert)];
    }
  }
  return steps;
}

}  // namespace metro
