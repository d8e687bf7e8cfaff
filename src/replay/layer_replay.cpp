#include "replay/layer_replay.hpp"

#include "base/integers.hpp"
#include "routing/lock_order.hpp"

#include <algorithm>
#include <chrono>

namespace metro {

LayerReplay::LayerReplay(const RoutingTrace& trace, std::int64_t layer, std::span<const std::int32_t> slot_to_expert,
                         std::int64_t num_ranks, std::uint64_t seed)
    : trace_(trace),
      layer_(layer),
      slot_to_expert_(slot_to_expert),
      map_(slot_to_expert, trace.model.num_experts, num_ranks),
      optimal_router_(RoutingPolicy::exact, map_),
      seed_(seed),
      counts_(at(trace.model.num_experts)),
      expert_to_rank_(at(trace.model.num_experts)),
      other_expert_to_rank_(at(trace.model.num_experts)) {}

RoutingStatisticsSum LayerReplay::route(const ReplayCase& replayed, std::span<const TraceBatch> batches,
                                        const ReplayObserver& observe) {
  using Clock = std::chrono::steady_clock;
  StepRouterOptions options;
  options.seed = seed_;
  StepRouter router(replayed.policy, map_, options);
  StepRouter probe(replayed.policy, map_, options);
  RoutingStatisticsSum sum;
  for (std::int64_t draw = 0; draw < std::ssize(batches); ++draw) {
    const TraceBatch& batch = batches[at(draw)];
    load_batch(batch);
    optimal_router_.route(counts_, expert_to_rank_);

    const Clock::time_point begin = Clock::now();
    router.route(topk_idx_, trace_.model.top_k, batch.row_to_rank, draw, layer_, slots_);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

    RoutedBatch routed;
    routed.num_active = num_active_;
    routed.activated = router.activated();
    routed.rows = router.rows();
    routed.optimum = optimal_router_.lambda();
    routed.num_assignments = std::ssize(topk_idx_);
    routed.seconds = seconds;
    if (observe) {
      observe({replayed, layer_, draw, batch, topk_idx_, slot_to_expert_, slots_, routed.activated, routed.optimum});
    }
    if (replayed.policy == RoutingPolicy::metro) {
      routed.num_lock_differing = count_lock_differing(draw);
    }
    // Policies that look at the counts of all ranks are functions of what every rank has.
    if (!needs_counts_of_all_ranks(replayed.policy)) {
      routed.num_differing = count_differing(probe, draw);
    }
    sum.add(routed);
  }
  return sum;
}

void LayerReplay::load_batch(const TraceBatch& batch) {
  topk_idx_.clear();
  for (const std::int64_t row : batch.rows) {
    const auto experts = trace_.experts(row, layer_);
    topk_idx_.insert(topk_idx_.end(), experts.begin(), experts.end());
  }
  slots_.resize(topk_idx_.size());
  std::fill(counts_.begin(), counts_.end(), 0);
  for (const std::int32_t expert : topk_idx_) {
    ++counts_[at(expert)];
  }
  num_active_ = std::ssize(counts_) - std::count(counts_.begin(), counts_.end(), 0);
}

std::int64_t LayerReplay::count_differing(StepRouter& router, std::int64_t draw) {
  differs_.assign(topk_idx_.size(), false);
  other_slots_.resize(topk_idx_.size());
  for (std::int64_t rank = 0; rank < map_.num_ranks(); ++rank) {
    as_one_rank_.assign(topk_idx_.size() / at(trace_.model.top_k), static_cast<std::int32_t>(rank));
    std::vector<std::int32_t>& slots = rank == 0 ? slots_of_first_ : other_slots_;
    slots.resize(topk_idx_.size());
    router.route(topk_idx_, trace_.model.top_k, as_one_rank_, draw, layer_, slots);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      differs_[i] = differs_[i] || slots[i] != slots_of_first_[i];
    }
  }
  return std::count(differs_.begin(), differs_.end(), true);
}

std::int64_t LayerReplay::count_lock_differing(std::int64_t draw) {
  // Two ranks: two orders, and new ones for every batch.
  const auto first = static_cast<std::uint64_t>(2 * draw);
  route_in_lock_order(map_, counts_, seed_ + first, expert_to_rank_);
  route_in_lock_order(map_, counts_, seed_ + first + 1, other_expert_to_rank_);
  std::int64_t num_differing = 0;
  for (std::size_t expert = 0; expert < counts_.size(); ++expert) {
    num_differing += expert_to_rank_[expert] != other_expert_to_rank_[expert] ? 1 : 0;
  }
  return num_differing;
}

}  // namespace metro
