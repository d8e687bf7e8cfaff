// From a start, the smallest time is looked for by bisection: for a target time T every rank may have so many active
// experts and so many rows, and a repair tries to bring all ranks within both. Splitting rows with a price per active
// expert is NP-hard, so the repair is a search that may miss a solution; what it finds is checked by counting.
#include "routing/makespan.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace metro {

namespace {

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

bool is_cost(std::int64_t value) {
  return value >= 0 && value <= MakespanCosts::largest;
}

}  // namespace

MakespanRouter::MakespanRouter(const MakespanCosts& costs, const ReplicaMap& map)
    : costs_(costs),
      map_(&map),
      exact_(RoutingPolicy::exact, map),
      expert_to_rank_(at(map.num_experts())),
      rank_begin_(at(map.num_ranks() + 1)),
      reached_from_(at(map.num_ranks())),
      reached_by_(at(map.num_ranks())) {
  METRO_REQUIRE(is_cost(costs.read_fixed) && is_cost(costs.read_per_expert) && is_cost(costs.compute_fixed) &&
                    is_cost(costs.compute_per_row),
                "a cost of makespan is out of range");
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    for (const std::int32_t rank : map.hosts_of(expert)) {
      pair_to_expert_.push_back(expert);
      pair_to_rank_.push_back(rank);
      ++rank_begin_[at(rank + 1)];
    }
  }
  for (std::size_t rank = 1; rank < rank_begin_.size(); ++rank) {
    rank_begin_[rank] += rank_begin_[rank - 1];
  }
  pairs_of_rank_.resize(pair_to_rank_.size());
  std::vector<std::int64_t> next(rank_begin_.begin(), rank_begin_.end() - 1);
  for (std::size_t pair = 0; pair < pair_to_rank_.size(); ++pair) {
    pairs_of_rank_[at(next[at(pair_to_rank_[pair])]++)] = static_cast<std::int64_t>(pair);
  }
  for (Shares* shares : {&result_, &other_, &trial_}) {
    shares->rows_of_pair.resize(pair_to_rank_.size());
    shares->rows_of_rank.resize(at(map.num_ranks()));
    shares->active.resize(at(map.num_ranks()));
  }
  queue_.reserve(at(map.num_ranks()));
}

std::span<const std::int64_t> MakespanRouter::shares_of(std::int64_t expert) const {
  const std::int64_t begin = map_->host_begin(expert);
  return std::span(result_.rows_of_pair).subspan(at(begin), at(map_->host_begin(expert + 1) - begin));
}

std::int64_t MakespanRouter::num_bytes() const {
  std::int64_t bytes = exact_.num_bytes() + held_bytes(expert_to_rank_, pair_to_expert_, pair_to_rank_, queue_) +
                       held_bytes(pairs_of_rank_, rank_begin_, reached_from_, reached_by_);
  for (const Shares* shares : {&result_, &other_, &trial_}) {
    bytes += held_bytes(shares->rows_of_pair, shares->rows_of_rank, shares->active);
  }
  return bytes;
}

void MakespanRouter::route(std::span<const std::int32_t> counts) {
  METRO_REQUIRE(std::ssize(counts) == map_->num_experts(), fmt::format("{} counts", counts.size()));
  start_from_exact(counts);
  start_from_even(counts);
  improve(result_);
  improve(other_);
  if (other_.time < result_.time) {
    std::swap(result_, other_);
  }
}

void MakespanRouter::start_from_exact(std::span<const std::int32_t> counts) {
  exact_.route(counts, expert_to_rank_);
  for (std::size_t pair = 0; pair < pair_to_rank_.size(); ++pair) {
    const std::size_t expert = at(pair_to_expert_[pair]);
    result_.rows_of_pair[pair] = expert_to_rank_[expert] == pair_to_rank_[pair] ? counts[expert] : 0;
  }
  account(result_);
}

// `even` over all rows. Slots of an expert on one rank are one pair here, so it counts no more than it would activate.
void MakespanRouter::start_from_even(std::span<const std::int32_t> counts) {
  std::fill(other_.rows_of_pair.begin(), other_.rows_of_pair.end(), 0);
  for (std::int64_t expert = 0; expert < map_->num_experts(); ++expert) {
    const auto slots = map_->slots_of(expert);
    const std::int64_t whole = counts[at(expert)] / std::ssize(slots);
    std::int64_t left = counts[at(expert)] % std::ssize(slots);
    std::int64_t pair = map_->host_begin(expert);
    for (const std::int32_t slot : slots) {
      pair += pair_to_rank_[at(pair)] == map_->rank_of_slot(slot) ? 0 : 1;
      other_.rows_of_pair[at(pair)] += whole + (left > 0 ? 1 : 0);
      left -= left > 0 ? 1 : 0;
    }
  }
  account(other_);
}

void MakespanRouter::account(Shares& shares) const {
  std::fill(shares.rows_of_rank.begin(), shares.rows_of_rank.end(), 0);
  std::fill(shares.active.begin(), shares.active.end(), 0);
  for (std::size_t pair = 0; pair < pair_to_rank_.size(); ++pair) {
    const std::size_t rank = at(pair_to_rank_[pair]);
    shares.rows_of_rank[rank] += shares.rows_of_pair[pair];
    shares.active[rank] += shares.rows_of_pair[pair] > 0 ? 1 : 0;
  }
  shares.time = 0;
  for (std::size_t rank = 0; rank < shares.active.size(); ++rank) {
    shares.time = std::max(shares.time, costs_.of(shares.active[rank], shares.rows_of_rank[rank]));
  }
}

// Bisects between the time of `best` and a bound that nothing beats, keeping every success in `best`.
void MakespanRouter::improve(Shares& best) {
  std::int64_t num_rows = 0;
  for (const std::int64_t rows : best.rows_of_rank) {
    num_rows += rows;
  }
  std::int64_t too_short = costs_.of(exact_.lambda(), ceil_div(num_rows, map_->num_ranks())) - 1;
  while (best.time - too_short > 1) {
    const std::int64_t time = too_short + (best.time - too_short) / 2;
    trial_ = best;
    if (meet(target_for(time))) {
      account(trial_);
      std::swap(best, trial_);
    } else {
      too_short = time;
    }
  }
}

MakespanRouter::Target MakespanRouter::target_for(std::int64_t time) const {
  Target target{unlimited, unlimited};
  if (costs_.read_per_expert > 0) {
    target.most_active = (time - costs_.read_fixed) / costs_.read_per_expert;
  }
  if (costs_.compute_per_row > 0) {
    target.most_rows = (time - costs_.compute_fixed) / costs_.compute_per_row;
  }
  return target;
}

// Brings every rank of trial_ within `target`: experts first, whole shares at a time, then rows.
bool MakespanRouter::meet(const Target& target) {
  const auto num_ranks = static_cast<std::int32_t>(map_->num_ranks());
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    while (trial_.active[at(rank)] > target.most_active) {
      if (!drop_expert(rank, target)) {
        return false;
      }
    }
  }
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    while (trial_.rows_of_rank[at(rank)] > target.most_rows) {
      if (!pass_rows_on(rank, target, false) && !pass_rows_on(rank, target, true)) {
        return false;
      }
    }
  }
  return true;
}

// Moves the smallest share that another host can take in whole off `rank`.
bool MakespanRouter::drop_expert(std::int32_t rank, const Target& target) {
  std::int64_t from = -1;
  std::int64_t to = -1;
  for (std::int64_t idx = rank_begin_[at(rank)]; idx < rank_begin_[at(rank + 1)]; ++idx) {
    const std::int64_t pair = pairs_of_rank_[at(idx)];
    const std::int64_t rows = trial_.rows_of_pair[at(pair)];
    if (rows > 0 && (from < 0 || rows < trial_.rows_of_pair[at(from)])) {
      const std::int64_t host = host_for_share(pair, target);
      if (host >= 0) {
        from = pair;
        to = host;
      }
    }
  }
  if (from < 0) {
    return false;
  }
  move_rows(from, to, trial_.rows_of_pair[at(from)]);
  return true;
}

// The pair of the same expert whose rank has the fewest rows among those that have the expert active or may.
std::int64_t MakespanRouter::host_for_share(std::int64_t pair, const Target& target) const {
  const std::int64_t expert = pair_to_expert_[at(pair)];
  std::int64_t best = -1;
  for (std::int64_t other = map_->host_begin(expert); other < map_->host_begin(expert + 1); ++other) {
    const std::size_t rank = at(pair_to_rank_[at(other)]);
    const bool can_take = trial_.rows_of_pair[at(other)] > 0 || trial_.active[rank] < target.most_active;
    if (other != pair && can_take &&
        (best < 0 || trial_.rows_of_rank[rank] < trial_.rows_of_rank[at(pair_to_rank_[at(best)])])) {
      best = other;
    }
  }
  return best;
}

// Passes rows from rank to rank along the shortest way to one with room for rows: through experts that are active on
// both ends of every step, or also to where they may become so. As many rows as the way and the room allow.
bool MakespanRouter::pass_rows_on(std::int32_t from_rank, const Target& target, bool may_activate) {
  reach_from(from_rank, target, may_activate);
  const std::int32_t end = queue_.back();
  if (trial_.rows_of_rank[at(end)] >= target.most_rows) {
    return false;
  }
  std::int64_t rows =
      std::min(trial_.rows_of_rank[at(from_rank)] - target.most_rows, target.most_rows - trial_.rows_of_rank[at(end)]);
  for (std::int32_t rank = end; rank != from_rank; rank = pair_to_rank_[at(reached_from_[at(rank)])]) {
    rows = std::min(rows, trial_.rows_of_pair[at(reached_from_[at(rank)])]);
  }
  for (std::int32_t rank = end; rank != from_rank;) {
    const std::int64_t from_pair = reached_from_[at(rank)];
    move_rows(from_pair, reached_by_[at(rank)], rows);
    rank = pair_to_rank_[at(from_pair)];
  }
  return true;
}

// Breadth-first over ranks until one with room for rows is reached; it is then the last of queue_.
void MakespanRouter::reach_from(std::int32_t rank, const Target& target, bool may_activate) {
  std::fill(reached_by_.begin(), reached_by_.end(), -1);
  queue_.assign(1, rank);
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const std::int32_t from = queue_[head];
    for (std::int64_t idx = rank_begin_[at(from)]; idx < rank_begin_[at(from + 1)]; ++idx) {
      const std::int64_t pair = pairs_of_rank_[at(idx)];
      if (trial_.rows_of_pair[at(pair)] == 0) {
        continue;
      }
      const std::int64_t expert = pair_to_expert_[at(pair)];
      for (std::int64_t other = map_->host_begin(expert); other < map_->host_begin(expert + 1); ++other) {
        const std::int32_t to = pair_to_rank_[at(other)];
        const bool is_open =
            trial_.rows_of_pair[at(other)] > 0 || (may_activate && trial_.active[at(to)] < target.most_active);
        if (to == rank || reached_by_[at(to)] >= 0 || !is_open) {
          continue;
        }
        reached_from_[at(to)] = pair;
        reached_by_[at(to)] = other;
        queue_.push_back(to);
        if (trial_.rows_of_rank[at(to)] < target.most_rows) {
          return;
        }
      }
    }
  }
}

void MakespanRouter::move_rows(std::int64_t from_pair, std::int64_t to_pair, std::int64_t rows) {
  const std::size_t from_rank = at(pair_to_rank_[at(from_pair)]);
  const std::size_t to_rank = at(pair_to_rank_[at(to_pair)]);
  trial_.active[to_rank] += trial_.rows_of_pair[at(to_pair)] == 0 ? 1 : 0;
  trial_.rows_of_pair[at(from_pair)] -= rows;
  trial_.rows_of_pair[at(to_pair)] += rows;
  trial_.active[from_rank] -= trial_.rows_of_pair[at(from_pair)] == 0 ? 1 : 0;
  trial_.rows_of_rank[from_rank] -= rows;
  trial_.rows_of_rank[to_rank] += rows;
}

}  // namespace metro
