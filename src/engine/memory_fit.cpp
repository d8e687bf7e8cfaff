#include "engine/memory_fit.hpp"

#include "base/integers.hpp"
#include "decoder/listed_decode.hpp"
#include "engine/limits.hpp"
#include "placement/placement.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace metro {

namespace {

std::int64_t slots_of(const Deck& deck, const ModelSpec& spec, std::int64_t num_ranks) {
  return deck.experts.slots_per_rank > 0
             ? deck.experts.slots_per_rank
             : slots_for_replication(spec.moe.num_experts, num_ranks, deck.experts.replication);
}

// Decode that the device routes takes memory of its own, where it is possible.
void let_device_route(const ModelSpec& spec, const Placement& placement, DecoderLimits& limits) {
  const std::int64_t wanted = static_cast<std::int64_t>(std::bit_ceil(at(limits.max_decode_rows)));
  limits.listed.most_rows = std::min(wanted, ListedDecode::most_rows(spec, placement, {}, limits).num_rows);
}

}  // namespace

std::optional<MemoryFit> memory_fit(const Deck& deck, const WeightReader& weights, std::int64_t num_ranks,
                                    std::int64_t gpu_bytes) {
  const ModelSpec& spec = weights.spec();
  const std::int64_t slots = slots_of(deck, spec, num_ranks);
  if (slots * num_ranks < spec.moe.num_experts) {
    return std::nullopt;
  }
  // With equal loads all ranks hold as many experts, so that the kind of placement does not matter.
  const Placement placement = place_trivial(spec.num_moe_layers(), spec.moe.num_experts, num_ranks, slots);
  DecoderLimits limits = decoder_limits(deck, spec, num_ranks, true);
  let_device_route(spec, placement, limits);
  const std::vector<MemoryPlan> plans =
      plan_memory_of_ranks(weights, placement, limits, std::vector<std::int64_t>(at(num_ranks), 1));

  MemoryFit fit;
  fit.num_ranks = num_ranks;
  fit.slots_per_rank = slots;
  fit.memory = *std::max_element(plans.begin(), plans.end(),
                                 [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
  const std::int64_t left =
      static_cast<std::int64_t>(usable_share * static_cast<double>(gpu_bytes)) - fit.memory.total();
  const std::int64_t budget =
      deck.kv.memory > 0 ? deck.kv.memory : static_cast<std::int64_t>(kv_share * static_cast<double>(left));
  const std::int64_t block_bytes = kv_bytes_per_block(spec, limits.block_tokens);
  const std::int64_t of_sequence = ceil_div(limits.max_context, limits.block_tokens);
  const std::int64_t of_batch = deck.batch.max_sequences_per_rank * of_sequence;
  const std::int64_t blocks = std::min(of_batch, budget / block_bytes);
  if (left < 0 || blocks < of_sequence || blocks * block_bytes > left) {
    return std::nullopt;
  }
  fit.memory.kv = blocks * block_bytes;
  fit.kv_tokens = blocks * limits.block_tokens;
  return fit;
}

std::optional<MemoryFit> fewest_ranks(const Deck& deck, const WeightReader& weights, std::int64_t gpu_bytes,
                                      std::int64_t most_ranks) {
  for (std::int64_t num_ranks = 1; num_ranks <= most_ranks; ++num_ranks) {
    if (const auto fit = memory_fit(deck, weights, num_ranks, gpu_bytes)) {
      return fit;
    }
  }
  return std::nullopt;
}

}  // namespace metro
