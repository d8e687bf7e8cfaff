#include "routing/optimum.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace metro::test {

namespace {

using Hosts = std::vector<std::vector<std::int32_t>>;  // of every active expert

Hosts hosts_of_active(const Instance& instance) {
  Hosts hosts;
  for (const std::size_t expert : instance.active_experts()) {
    hosts.push_back(instance.hosts_of(expert));
  }
  return hosts;
}

class Matching {
 public:
  Matching(const Hosts& hosts, std::int64_t num_ranks, std::int32_t capacity)
      : hosts_(hosts), capacity_(static_cast<std::size_t>(capacity)), guests_(static_cast<std::size_t>(num_ranks)) {}

  bool covers_all() {
    for (std::size_t expert = 0; expert < hosts_.size(); ++expert) {
      is_visited_.assign(guests_.size(), false);
      if (!admit(expert)) {
        return false;
      }
    }
    return true;
  }

 private:
  // Finds `expert` a place, moving guests on depth-first where all its hosts are full.
  bool admit(std::size_t expert) {
    for (const std::int32_t host : hosts_[expert]) {
      const auto rank = static_cast<std::size_t>(host);
      if (is_visited_[rank]) {
        continue;
      }
      is_visited_[rank] = true;
      if (guests_[rank].size() < capacity_) {
        guests_[rank].push_back(expert);
        return true;
      }
      for (std::size_t& guest : guests_[rank]) {
        if (admit(guest)) {
          guest = expert;
          return true;
        }
      }
    }
    return false;
  }

  const Hosts& hosts_;
  std::size_t capacity_;
  std::vector<std::vector<std::size_t>> guests_;
  std::vector<bool> is_visited_;
};

}  // namespace

std::int32_t lambda_by_brute_force(const Instance& instance) {
  const Hosts hosts = hosts_of_active(instance);
  std::vector<std::int32_t> activated(static_cast<std::size_t>(instance.num_ranks), 0);
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max();
  const std::function<void(std::size_t)> place_from = [&](std::size_t idx) {
    if (idx == hosts.size()) {
      smallest = std::min(smallest, *std::max_element(activated.begin(), activated.end()));
      return;
    }
    for (const std::int32_t rank : hosts[idx]) {
      ++activated[static_cast<std::size_t>(rank)];
      place_from(idx + 1);
      --activated[static_cast<std::size_t>(rank)];
    }
  };
  place_from(0);
  return smallest;
}

std::int32_t lambda_by_matching(const Instance& instance) {
  const Hosts hosts = hosts_of_active(instance);
  std::int32_t capacity = 0;
  while (!Matching(hosts, instance.num_ranks, capacity).covers_all()) {
    ++capacity;
  }
  return capacity;
}

std::vector<std::int32_t> exact_by_definition(const Instance& instance) {
  const auto num_ranks = static_cast<std::size_t>(instance.num_ranks);
  std::vector<std::int32_t> expert_to_rank(instance.counts.size(), -1);
  std::vector<std::int32_t> load(num_ranks, 0);
  Hosts hosts(instance.counts.size());
  for (const std::size_t expert : instance.active_experts()) {
    hosts[expert] = instance.hosts_of(expert);
  }
  for (std::size_t num_hosts = 1; num_hosts <= num_ranks; ++num_hosts) {
    for (const std::size_t expert : instance.active_experts()) {
      if (hosts[expert].size() == num_hosts) {
        std::int32_t best = hosts[expert].front();
        for (const std::int32_t rank : hosts[expert]) {
          best = load[static_cast<std::size_t>(rank)] < load[static_cast<std::size_t>(best)] ? rank : best;
        }
        expert_to_rank[expert] = best;
        ++load[static_cast<std::size_t>(best)];
      }
    }
  }
  const std::int64_t num_active = std::ssize(instance.active_experts());
  while (true) {
    const std::int32_t largest = *std::max_element(load.begin(), load.end());
    if ((largest - 1) * instance.num_ranks < num_active) {
      return expert_to_rank;  // as even as the number of experts allows
    }
    const auto source = static_cast<std::int32_t>(std::find(load.begin(), load.end(), largest) - load.begin());
    struct Step {
      std::int32_t rank, expert;
      std::size_t previous;
    };
    std::vector<Step> steps{{source, -1, 0}};
    std::vector<bool> is_reached(num_ranks, false);
    is_reached[static_cast<std::size_t>(source)] = true;
    std::size_t end = 0;  // the step that reached a rank light enough; 0 = none yet
    for (std::size_t current = 0; current < steps.size() && end == 0; ++current) {
      for (std::size_t expert = 0; expert < hosts.size() && end == 0; ++expert) {
        if (expert_to_rank[expert] != steps[current].rank) {
          continue;
        }
        for (const std::int32_t rank : hosts[expert]) {
          if (is_reached[static_cast<std::size_t>(rank)]) {
            continue;
          }
          is_reached[static_cast<std::size_t>(rank)] = true;
          steps.push_back({rank, static_cast<std::int32_t>(expert), current});
          if (load[static_cast<std::size_t>(rank)] <= largest - 2) {
            end = steps.size() - 1;
            break;
          }
        }
      }
    }
    if (end == 0) {
      return expert_to_rank;
    }
    --load[static_cast<std::size_t>(source)];
    ++load[static_cast<std::size_t>(steps[end].rank)];
    for (std::size_t step = end; step != 0; step = steps[step].previous) {
      expert_to_rank[static_cast<std::size_t>(steps[step].expert)] = steps[step].rank;
    }
  }
}

}  // namespace metro::test
