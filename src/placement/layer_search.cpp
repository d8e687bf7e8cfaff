#include "placement/layer_search.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "placement/lambda_tracker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <utility>

namespace metro {

namespace {

// A change that adds this much to the expected lambda is accepted with probability 1 / e, at the start and at the end.
// Tuned on recorded routing (docs/placement.md): EPLB is a good start that more heat would only undo.
constexpr double first_temperature = 2.5e-3;
constexpr double last_temperature = 1e-4;
constexpr std::int64_t moves_per_report = 256;

template <int num_words>
class LayerSearch {
 public:
  LayerSearch(const LayerSearchTask& task, std::vector<std::int32_t> start)
      : num_experts_(task.sample->num_experts()),
        num_ranks_(task.num_ranks),
        num_nodes_(task.num_nodes),
        slots_per_rank_(std::ssize(start) / task.num_ranks),
        num_steps_(static_cast<double>(task.sample->num_steps())),
        node_cost_(static_cast<std::int64_t>(std::llround(same_node_cost * num_steps_))),
        slots_(std::move(start)),
        random_(task.seed + static_cast<std::uint64_t>(task.moe_layer)),
        tracker_(*task.sample, task.moe_layer, hosts_of_full_slots(task), task.num_ranks) {
    for (std::int64_t expert = 0; expert < num_experts_; ++expert) {
      num_same_node_ += same_node_replicas(tracker_.hosts_of(expert));
    }
    keep_best();
  }

  LayerSearchResult run(std::int64_t num_moves, const std::function<void(std::int64_t)>& moves_done) {
    double temperature = first_temperature;
    for (std::int64_t move = 0; move < num_moves; ++move) {
      if (move % moves_per_report == 0) {
        moves_done(std::min(moves_per_report, num_moves - move));
        const double done = static_cast<double>(move) / static_cast<double>(num_moves);
        temperature = first_temperature * std::pow(last_temperature / first_temperature, done);
      }
      const double uniform = (static_cast<double>(random_() >> 11U) + 1.0) * 0x1p-53;  // in (0, 1]
      const auto most_growth = static_cast<std::int64_t>(-std::log(uniform) * temperature * num_steps_);
      const bool changed = random_below(2) == 0 ? try_swap(most_growth) : try_replace(most_growth);
      if (changed && cost() < best_cost_) {
        keep_best();
      }
    }
    return {std::move(best_slots_), best_total_};
  }

 private:
  using Mask = RankMask<num_words>;
  using HostChange = typename LambdaTracker<num_words>::HostChange;

  std::int64_t cost() const { return tracker_.total() + node_cost_ * num_same_node_; }

  void keep_best() {
    best_cost_ = cost();
    best_total_ = tracker_.total();
    best_slots_ = slots_;
  }

  std::int64_t random_below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }

  bool holds(std::int64_t rank, std::int32_t expert) const {
    const auto slots = std::span(slots_).subspan(at(rank * slots_per_rank_), at(slots_per_rank_));
    return std::find(slots.begin(), slots.end(), expert) != slots.end();
  }

  // A second slot of an expert on the same rank serves nothing: the expert that was active most often per slot gets it,
  // of those that the rank does not hold. Then returns the hosts of all experts.
  std::vector<Mask> hosts_of_full_slots(const LayerSearchTask& task) {
    const std::vector<std::int64_t> steps = task.sample->steps_of_experts(task.moe_layer);
    std::vector<std::int64_t> num_slots(at(num_experts_), 0);
    for (const std::int32_t expert : slots_) {
      ++num_slots[at(expert)];
    }
    for (std::int64_t slot = 0; slot < std::ssize(slots_); ++slot) {
      const std::int64_t rank = slot / slots_per_rank_;
      const auto before = std::span(slots_).subspan(at(rank * slots_per_rank_), at(slot % slots_per_rank_));
      if (std::find(before.begin(), before.end(), slots_[at(slot)]) == before.end()) {
        continue;
      }
      std::int32_t best = -1;
      for (std::int32_t expert = 0; expert < num_experts_; ++expert) {
        const auto is_better = [&] {
          return best < 0 || steps[at(expert)] * num_slots[at(best)] > steps[at(best)] * num_slots[at(expert)];
        };
        if (!holds(rank, expert) && is_better()) {
          best = expert;
        }
      }
      if (best >= 0) {
        --num_slots[at(slots_[at(slot)])];
        ++num_slots[at(best)];
        slots_[at(slot)] = best;
      }
    }
    std::vector<Mask> hosts(at(num_experts_));
    for (std::int64_t slot = 0; slot < std::ssize(slots_); ++slot) {
      hosts[at(slots_[at(slot)])].add(slot / slots_per_rank_);
    }
    return hosts;
  }

  // Hosts beyond the first on each node.
  std::int64_t same_node_replicas(const Mask& hosts) const {
    std::int64_t count = 0;
    std::int64_t last_node = -1;
    hosts.for_each([&](std::int32_t rank) {
      const std::int64_t node = rank * num_nodes_ / num_ranks_;
      count += node == last_node ? 1 : 0;
      last_node = node;
    });
    return num_nodes_ == 1 ? 0 : count;
  }

  // The experts of two slots on different ranks change places.
  bool try_swap(std::int64_t most_growth) {
    const std::int64_t slot_a = random_below(std::ssize(slots_));
    const std::int64_t slot_b = random_below(std::ssize(slots_));
    const std::int64_t rank_a = slot_a / slots_per_rank_;
    const std::int64_t rank_b = slot_b / slots_per_rank_;
    const std::int32_t expert_a = slots_[at(slot_a)];
    const std::int32_t expert_b = slots_[at(slot_b)];
    if (rank_a == rank_b || holds(rank_b, expert_a) || holds(rank_a, expert_b)) {
      return false;
    }
    std::array<HostChange, 2> changes{
        {{expert_a, tracker_.hosts_of(expert_a)}, {expert_b, tracker_.hosts_of(expert_b)}}};
    changes[0].hosts.remove(rank_a);
    changes[0].hosts.add(rank_b);
    changes[1].hosts.remove(rank_b);
    changes[1].hosts.add(rank_a);
    if (!try_changes(changes, most_growth)) {
      return false;
    }
    std::swap(slots_[at(slot_a)], slots_[at(slot_b)]);
    return true;
  }

  // A slot of an expert with several replicas goes to another expert.
  bool try_replace(std::int64_t most_growth) {
    const std::int64_t slot = random_below(std::ssize(slots_));
    const std::int64_t rank = slot / slots_per_rank_;
    const auto fresh = static_cast<std::int32_t>(random_below(num_experts_));
    const std::int32_t old = slots_[at(slot)];
    if (tracker_.hosts_of(old).size() < 2 || holds(rank, fresh)) {
      return false;
    }
    std::array<HostChange, 2> changes{{{old, tracker_.hosts_of(old)}, {fresh, tracker_.hosts_of(fresh)}}};
    changes[0].hosts.remove(rank);
    changes[1].hosts.add(rank);
    if (!try_changes(changes, most_growth)) {
      return false;
    }
    slots_[at(slot)] = fresh;
    return true;
  }

  bool try_changes(const std::array<HostChange, 2>& changes, std::int64_t most_growth) {
    std::int64_t more_same_node = 0;
    for (const HostChange& change : changes) {
      more_same_node += same_node_replicas(change.hosts) - same_node_replicas(tracker_.hosts_of(change.expert));
    }
    if (!tracker_.change_hosts(changes, most_growth - node_cost_ * more_same_node)) {
      return false;
    }
    num_same_node_ += more_same_node;
    return true;
  }

  std::int64_t num_experts_, num_ranks_, num_nodes_, slots_per_rank_;
  double num_steps_;
  std::int64_t node_cost_;  // of one replica whose node has the expert already, in units of total lambda
  std::vector<std::int32_t> slots_;
  std::mt19937_64 random_;
  LambdaTracker<num_words> tracker_;
  std::int64_t num_same_node_ = 0;

  std::int64_t best_cost_ = 0, best_total_ = 0;
  std::vector<std::int32_t> best_slots_;
};

}  // namespace

LayerSearchResult search_layer(const LayerSearchTask& task, std::vector<std::int32_t> start,
                               const std::function<void(std::int64_t)>& moves_done) {
  METRO_REQUIRE(task.num_nodes >= 1 && task.num_ranks >= 1,
                fmt::format("{} nodes, {} ranks", task.num_nodes, task.num_ranks));
  METRO_REQUIRE(std::ssize(start) % task.num_ranks == 0 && std::ssize(start) >= task.sample->num_experts(),
                fmt::format("{} slots on {} ranks", start.size(), task.num_ranks));
  return with_mask_width(task.num_ranks, [&](auto width) {
    return LayerSearch<decltype(width)::value>(task, std::move(start)).run(task.num_moves, moves_done);
  });
}

}  // namespace metro
