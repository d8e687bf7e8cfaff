#include "placement/lambda_tracker.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace metro {

namespace {

// Whether a change that grew as `growth` over the first 1 / part of the steps will very likely grow by more than
// most_growth over all: the steps are a sample in any order, and each changes by about one.
bool is_hopeless(std::int64_t growth, std::int64_t changed, std::int64_t most_growth, std::int64_t part) {
  const double noise = part == 1 ? 0.0 : 2.0 * std::sqrt(static_cast<double>(changed));
  return (static_cast<double>(growth) - noise) * static_cast<double>(part) > static_cast<double>(most_growth);
}

}  // namespace

template <int num_words>
LambdaTracker<num_words>::LambdaTracker(const ActivationSample& sample, std::int64_t moe_layer, std::vector<Mask> hosts,
                                        std::int64_t num_ranks)
    : num_ranks_(num_ranks),
      hosts_(std::move(hosts)),
      steps_(at(sample.num_steps())),
      loads_(at(sample.num_steps() * num_ranks)),
      reached_through_(at(num_ranks)) {
  METRO_REQUIRE(num_ranks >= 1 && num_ranks <= Mask::max_ranks, fmt::format("{} ranks", num_ranks));
  METRO_REQUIRE(std::ssize(hosts_) == sample.num_experts(), fmt::format("hosts of {} experts", hosts_.size()));
  occurrence_begin_.assign(hosts_.size() + 1, 0);
  entry_begin_.push_back(0);
  for (std::int64_t step = 0; step < sample.num_steps(); ++step) {
    for (const std::int32_t expert : sample.active_experts(step, moe_layer)) {
      METRO_REQUIRE(!hosts_[at(expert)].is_empty(), fmt::format("expert {} has no host", expert));
      entry_expert_.push_back(expert);
      ++occurrence_begin_[at(expert) + 1];
    }
    METRO_REQUIRE(std::ssize(entry_expert_) <= std::numeric_limits<std::int32_t>::max(), "too many active experts");
    entry_begin_.push_back(static_cast<std::int32_t>(entry_expert_.size()));
  }
  entry_rank_.resize(entry_expert_.size());
  std::partial_sum(occurrence_begin_.begin(), occurrence_begin_.end(), occurrence_begin_.begin());
  occurrences_.resize(entry_expert_.size());
  std::vector<std::int32_t> next(occurrence_begin_.begin(), occurrence_begin_.end() - 1);
  for (std::int32_t step = 0; step < static_cast<std::int32_t>(steps_.size()); ++step) {
    solve_first(step);
    const std::int32_t end = entry_begin_[at(step) + 1];
    for (std::int32_t entry = entry_begin_[at(step)]; entry < end; ++entry) {
      occurrences_[at(next[at(entry_expert_[at(entry)])]++)] = {step, entry};
    }
  }
}

template <int num_words>
void LambdaTracker<num_words>::solve_first(std::int32_t step) {
  const auto loads = loads_of(step);
  const std::int32_t end = entry_begin_[at(step) + 1];
  for (std::int32_t entry = entry_begin_[at(step)]; entry < end; ++entry) {
    const std::int32_t rank = least_loaded_host(step, entry);
    entry_rank_[at(entry)] = static_cast<std::uint16_t>(rank);
    ++loads[at(rank)];
  }
  Step& state = steps_[at(step)];
  state.bound = static_cast<std::int32_t>(ceil_div(end - entry_begin_[at(step)], num_ranks_));
  repair(step, false);
  total_ += state.lambda;
  total_bound_ += state.bound;
}

template <int num_words>
bool LambdaTracker<num_words>::change_hosts(std::span<const HostChange> changes, std::int64_t most_growth) {
  METRO_REQUIRE(changes.size() == 1 || (changes.size() == 2 && changes[0].expert != changes[1].expert),
                fmt::format("{} changes", changes.size()));
  std::array<Trial, 2> trials;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    METRO_REQUIRE(!changes[i].hosts.is_empty(), fmt::format("expert {} has no host", changes[i].expert));
    Mask& hosts = hosts_[at(changes[i].expert)];
    trials[i] = {occurrences_of(changes[i].expert), 0, hosts, changes[i].hosts};
    hosts = changes[i].hosts;
  }
  saved_steps_.clear();
  saved_entries_.clear();
  Growth growth;
  const auto num_steps = static_cast<std::int64_t>(steps_.size());
  for (std::int64_t part = 16; part >= 1; part /= 2) {
    try_until(static_cast<std::int32_t>(num_steps / part), trials, growth);
    if (is_hopeless(growth.sum, growth.changed, most_growth, part)) {
      for (std::size_t i = 0; i < changes.size(); ++i) {
        hosts_[at(changes[i].expert)] = trials[i].old_hosts;
      }
      restore();
      return false;
    }
  }
  total_ += growth.sum;
  return true;
}

// Carries the trials on to the steps before step_end.
template <int num_words>
void LambdaTracker<num_words>::try_until(std::int32_t step_end, std::span<Trial, 2> trials, Growth& growth) {
  while (true) {
    const std::array<std::int32_t, 2> next{trials[0].next_step(), trials[1].next_step()};
    const std::int32_t step = std::min(next[0], next[1]);
    if (step >= step_end) {
      return;
    }
    Step& state = steps_[at(step)];
    std::int32_t surplus = state.surplus;
    std::array<std::int32_t, 2> entries_without_host;
    std::size_t num_without_host = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      if (next[i] == step) {
        const std::int32_t entry = trials[i].occurrences[trials[i].position++].entry;
        surplus += (trials[i].new_hosts.is_within(state.certificate) ? 1 : 0) -
                   (trials[i].old_hosts.is_within(state.certificate) ? 1 : 0);
        if (!trials[i].new_hosts.has(entry_rank_[at(entry)])) {
          entries_without_host[num_without_host++] = entry;
        }
      }
    }
    if (num_without_host == 0 && surplus == state.surplus) {
      continue;
    }
    saved_steps_.push_back({step, state});
    state.surplus = surplus;
    if (num_without_host == 0 && surplus >= 1) {
      continue;
    }
    for (std::size_t i = 0; i < num_without_host; ++i) {
      move_entry(step, entries_without_host[i], least_loaded_host(step, entries_without_host[i]));
    }
    const std::int32_t before = state.lambda;
    repair(step, surplus >= 1);
    growth.sum += state.lambda - before;
    growth.changed += state.lambda != before ? 1 : 0;
  }
}

template <int num_words>
void LambdaTracker<num_words>::restore() {
  for (auto saved = saved_entries_.rbegin(); saved != saved_entries_.rend(); ++saved) {
    const auto loads = loads_of(saved->step);
    --loads[entry_rank_[at(saved->entry)]];
    ++loads[saved->rank];
    entry_rank_[at(saved->entry)] = saved->rank;
  }
  for (const SavedStep& saved : saved_steps_) {
    steps_[at(saved.step_idx)] = saved.step;
  }
}

template <int num_words>
std::int32_t LambdaTracker<num_words>::least_loaded_host(std::int32_t step, std::int32_t entry) const {
  const std::uint16_t* const loads = loads_.data() + step * num_ranks_;
  std::int32_t best = -1;
  hosts_[at(entry_expert_[at(entry)])].for_each([&](std::int32_t rank) {
    if (best < 0 || loads[rank] < loads[best]) {
      best = rank;
    }
  });
  return best;
}

// Lowers the largest load of a valid assignment to the optimum and sets lambda. A certificate that holds proves that
// lambda is not less than before.
template <int num_words>
void LambdaTracker<num_words>::repair(std::int32_t step, bool certificate_holds) {
  Step& state = steps_[at(step)];
  const auto loads = loads_of(step);
  const std::int32_t lower_bound = certificate_holds ? state.lambda : state.bound;
  state.lambda = *std::max_element(loads.begin(), loads.end());
  for (; state.lambda > lower_bound; --state.lambda) {
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(num_ranks_); ++rank) {
      if (loads[at(rank)] == state.lambda && !lower_one(step, rank, state.lambda)) {
        // No expert on the reached ranks has a host outside, so all of them must run there.
        state.certificate = reached_;
        state.surplus = -(state.lambda - 1) * reached_.size();
        reached_.for_each([&](std::int32_t member) { state.surplus += loads[at(member)]; });
        return;
      }
    }
  }
  if (!certificate_holds) {
    state.certificate = Mask::first(num_ranks_);
    const std::int32_t num_active = entry_begin_[at(step) + 1] - entry_begin_[at(step)];
    state.surplus = num_active - (state.lambda - 1) * static_cast<std::int32_t>(num_ranks_);
  }
}

// Searches breadth-first for a rank with at most max_load - 2 to which from_rank can hand down one expert.
template <int num_words>
bool LambdaTracker<num_words>::lower_one(std::int32_t step, std::int32_t from_rank, std::int32_t max_load) {
  const auto loads = loads_of(step);
  const std::int32_t end = entry_begin_[at(step) + 1];
  Mask frontier;
  frontier.add(from_rank);
  reached_ = frontier;
  while (!frontier.is_empty()) {
    Mask next;
    std::int32_t found = -1;
    for (std::int32_t entry = entry_begin_[at(step)]; entry < end && found < 0; ++entry) {
      if (!frontier.has(entry_rank_[at(entry)])) {
        continue;
      }
      const Mask fresh = hosts_[at(entry_expert_[at(entry)])].minus(reached_);
      fresh.for_each([&](std::int32_t rank) {
        reached_through_[at(rank)] = entry;
        if (found < 0 && loads[at(rank)] <= max_load - 2) {
          found = rank;
        }
      });
      reached_ |= fresh;
      next |= fresh;
    }
    if (found >= 0) {
      move_along_path(step, from_rank, found);
      return true;
    }
    frontier = next;
  }
  return false;
}

// Every expert on the path goes one rank further; only the ends change their load.
template <int num_words>
void LambdaTracker<num_words>::move_along_path(std::int32_t step, std::int32_t from_rank, std::int32_t to_rank) {
  for (std::int32_t rank = to_rank; rank != from_rank;) {
    const std::int32_t entry = reached_through_[at(rank)];
    const std::int32_t previous = entry_rank_[at(entry)];
    move_entry(step, entry, rank);
    rank = previous;
  }
}

template <int num_words>
void LambdaTracker<num_words>::move_entry(std::int32_t step, std::int32_t entry, std::int32_t to_rank) {
  const auto loads = loads_of(step);
  std::uint16_t& rank = entry_rank_[at(entry)];
  saved_entries_.push_back({step, entry, rank});
  --loads[rank];
  ++loads[at(to_rank)];
  rank = static_cast<std::uint16_t>(to_rank);
}

template class LambdaTracker<1>;
template class LambdaTracker<4>;
template class LambdaTracker<16>;

}  // namespace metro
