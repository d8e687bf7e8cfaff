#include "placement/activation_aware.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "base/threads.hpp"
#include "placement/layer_search.hpp"
#include "placement/slot_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>

namespace metro {

namespace {

// When layers may differ, a layer gets at most this many slots per rank more or fewer than the others.
constexpr std::int64_t most_difference = 2;
// The searches that find out what a layer would gain from more slots are this much shorter than the last one.
constexpr std::int64_t trial_shortening = 4;

// A search to be done; slots is EPLB's placement before and the best one found afterwards.
struct Search {
  std::int64_t moe_layer, slots_per_rank, num_moves;
  std::vector<std::int32_t> slots;
  std::int64_t total_lambda = 0;
};

class Planner {
 public:
  Planner(const ActivationSample& sample, std::span<const std::int64_t> loads, std::int64_t num_ranks,
          const ActivationAwareOptions& options, const SearchProgress& progress)
      : sample_(&sample), num_ranks_(num_ranks), options_(options), progress_(&progress) {
    loads_.assign(loads.begin(), loads.end());
    for (std::int64_t layer = 0; loads.empty() && layer < sample.num_layers(); ++layer) {
      const auto steps = sample.steps_of_experts(layer);
      loads_.insert(loads_.end(), steps.begin(), steps.end());
    }
  }

  Placement plan(std::int64_t slots_per_rank) {
    std::vector<Search> searches = start_searches(slots_per_rank, 1);
    total_moves_ = moves_of(searches);
    if (!options_.spread_over_layers || sample_->num_layers() == 1) {
      run(searches);
      return placement_of(searches);
    }
    const std::int64_t fewest =
        std::max(ceil_div(sample_->num_experts(), num_ranks_), slots_per_rank - most_difference);
    std::vector<std::vector<Search>> trials;  // [slots per rank - fewest][layer]
    for (std::int64_t slots = fewest; slots <= slots_per_rank + most_difference; ++slots) {
      trials.push_back(start_searches(slots, trial_shortening));
      total_moves_ += moves_of(trials.back());
    }
    for (auto& of_all_layers : trials) {
      run(of_all_layers);
    }
    searches = choose(trials, (slots_per_rank - fewest) * sample_->num_layers());
    for (Search& search : searches) {
      search.num_moves = options_.moves_per_slot * num_ranks_ * slots_per_rank;
    }
    run(searches);
    return placement_of(searches);
  }

 private:
  static std::int64_t moves_of(const std::vector<Search>& searches) {
    std::int64_t sum = 0;
    for (const Search& search : searches) {
      sum += search.num_moves;
    }
    return sum;
  }

  std::vector<Search> start_searches(std::int64_t slots_per_rank, std::int64_t shortening) const {
    const Placement eplb = place_eplb(loads_, sample_->num_layers(), sample_->num_experts(), options_.num_groups,
                                      options_.num_nodes, num_ranks_, slots_per_rank);
    std::vector<Search> searches;
    for (std::int64_t layer = 0; layer < sample_->num_layers(); ++layer) {
      const auto slots = eplb.layer(layer);
      searches.push_back({layer,
                          slots_per_rank,
                          options_.moves_per_slot * eplb.num_slots() / shortening,
                          {slots.begin(), slots.end()}});
    }
    return searches;
  }

  // Runs all searches, some at a time. Each depends on its own layer only.
  void run(std::vector<Search>& searches) {
    for_each_on_threads(std::ssize(searches), options_.num_threads,
                        [&](std::int64_t i, std::int64_t) { run(searches[at(i)]); });
  }

  void run(Search& search) {
    const LayerSearchTask task{sample_,       search.moe_layer, num_ranks_, options_.num_nodes,
                               options_.seed, search.num_moves};
    LayerSearchResult result =
        search_layer(task, std::move(search.slots), [this](std::int64_t moves) { report(moves); });
    search.slots = std::move(result.slots);
    search.total_lambda = result.total_lambda;
  }

  void report(std::int64_t moves) {
    const std::lock_guard lock(mutex_);
    moves_done_ += moves;
    if (*progress_) {
      (*progress_)(moves_done_, total_moves_);
    }
  }

  // One trial per layer, so that they have `budget` slots per rank above the fewest together and the least sum of
  // lambda. least[b] = that sum for the layers so far with at most b slots; by layers, then backwards for the choice.
  std::vector<Search> choose(std::vector<std::vector<Search>>& trials, std::int64_t budget) const {
    constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max() / 2;
    const std::int64_t num_layers = sample_->num_layers();
    std::vector<std::int64_t> least(at(budget + 1), 0);
    std::vector<std::vector<std::int64_t>> choice(at(num_layers), std::vector<std::int64_t>(at(budget + 1), 0));
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      std::vector<std::int64_t> next(at(budget + 1), unreachable);
      for (std::int64_t used = 0; used <= budget; ++used) {
        for (std::int64_t more = 0; more <= std::min<std::int64_t>(used, std::ssize(trials) - 1); ++more) {
          const std::int64_t sum = least[at(used - more)] + trials[at(more)][at(layer)].total_lambda;
          if (sum < next[at(used)]) {
            next[at(used)] = sum;
            choice[at(layer)][at(used)] = more;
          }
        }
      }
      least = std::move(next);
    }
    std::vector<Search> chosen(at(num_layers));
    for (std::int64_t layer = num_layers - 1; layer >= 0; --layer) {
      const std::int64_t more = choice[at(layer)][at(budget)];
      chosen[at(layer)] = std::move(trials[at(more)][at(layer)]);
      budget -= more;
    }
    return chosen;
  }

  Placement placement_of(const std::vector<Search>& searches) const {
    Placement placement{sample_->num_layers(), sample_->num_experts(), num_ranks_, 0, {}};
    for (const Search& search : searches) {
      placement.slots_per_rank = std::max(placement.slots_per_rank, search.slots_per_rank);
    }
    for (const Search& search : searches) {
      for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
        const std::int64_t rank = slot / placement.slots_per_rank;
        const std::int64_t in_rank = slot % placement.slots_per_rank;
        placement.slot_to_expert.push_back(in_rank < search.slots_per_rank
                                               ? search.slots[at(rank * search.slots_per_rank + in_rank)]
                                               : Placement::empty_slot);
      }
    }
    return placement;
  }

  const ActivationSample* sample_;
  std::vector<std::int64_t> loads_;
  std::int64_t num_ranks_;
  ActivationAwareOptions options_;
  const SearchProgress* progress_;

  std::mutex mutex_;
  std::int64_t moves_done_ = 0;
  std::int64_t total_moves_ = 0;
};

}  // namespace

Placement place_activation_aware(const ActivationSample& sample, std::span<const std::int64_t> loads,
                                 std::int64_t num_ranks, std::int64_t slots_per_rank,
                                 const ActivationAwareOptions& options, const SearchProgress& progress) {
  METRO_REQUIRE(options.moves_per_slot >= 0 && options.num_threads >= 1 && options.num_nodes >= 1,
                fmt::format("{} moves per slot, {} threads, {} nodes", options.moves_per_slot, options.num_threads,
                            options.num_nodes));
  check_slot_budget(sample.num_experts(), num_ranks, slots_per_rank);
  return Planner(sample, loads, num_ranks, options, progress).plan(slots_per_rank);
}

}  // namespace metro
