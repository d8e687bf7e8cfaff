#include "engine/memory_fit.hpp"

#include "base/integers.hpp"
#include "decoder/listed_decode.hpp"
#include "engine/limits.hpp"
#include "placement/placement.hpp"

#include <algorithm>
#include <vector>

namespace metro {

std::optional<MemoryFit> memory_fit(const Deck& deck, const WeightReader& weights, std::int64_t num_ranks,
                                    std::int64_t gpu_bytes) {
  const ModelSpec& spec = weights.spec();
  const std::int64_t slots = slots_per_rank_of(deck, spec.moe.num_experts, num_ranks);
  if (slots * num_ranks < spec.moe.num_experts) {
    return std::nullopt;
  }
  // With equal loads all ranks hold as many experts, so that the kind of placement does not matter.
  const Placement placement = place_trivial(spec.num_moe_layers(), spec.moe.num_experts, num_ranks, slots);
  DecoderLimits limits = decoder_limits(deck, spec, num_ranks, true);
  // Decode that the device routes takes memory of its own, where it is possible.
  limits.listed.most_rows = ListedDecode::most_rows(spec, placement, {}, limits).num_rows;
  const std::vector<MemoryPlan> plans =
      plan_memory_of_ranks(weights, placement, limits, std::vector<std::int64_t>(at(num_ranks), 1));

  MemoryFit fit;
  fit.num_ranks = num_ranks;
  fit.slots_per_rank = slots;
  fit.memory = *std::max_element(plans.begin(), plans.end(),
                                 [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
  const std::int64_t left =
      static_cast<std::int64_t>(usable_share * static_cast<double>(gpu_bytes)) - fit.memory.total();
  const std::int64_t block_bytes = kv_bytes_per_block(spec, limits.block_tokens);
  const KvRoom room = kv_room(deck, limits.max_context, block_bytes, left);
  if (left < 0 || !room.holds_a_sequence() || room.blocks * block_bytes > left) {
    return std::nullopt;
  }
  fit.memory.kv = room.blocks * block_bytes;
  fit.kv_tokens = room.blocks * limits.block_tokens;
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
