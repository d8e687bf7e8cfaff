#include "placement/activation_sample.hpp"

#include "base/integers.hpp"
#include "placement/lambda_tracker.hpp"
#include "routing/policy.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <random>

using metro::ActivationSample;
using metro::at;
using metro::ExitCode;
using metro::LambdaTracker;
using metro::Placement;
using metro::RankMask;
using metro::test::expect_error;

namespace {

ActivationSample random_sample(std::int64_t num_steps, std::int64_t num_layers, std::int64_t num_experts,
                               std::uint64_t percent_active, std::mt19937_64& random) {
  ActivationSample sample(num_steps, num_layers, num_experts);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      for (std::int64_t expert = 0; expert < num_experts; ++expert) {
        if (random() % 100 < percent_active) {
          sample.set_active(step, layer, expert);
        }
      }
    }
  }
  return sample;
}

// Every expert once, the other slots at random, some of them empty.
Placement random_placement(std::int64_t num_layers, std::int64_t num_experts, std::int64_t num_ranks,
                           std::int64_t slots_per_rank, std::mt19937_64& random) {
  Placement placement{num_layers, num_experts, num_ranks, slots_per_rank, {}};
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<std::int32_t> slots;
    for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
      const auto other = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(num_experts + 1)) - 1;
      slots.push_back(slot < num_experts ? static_cast<std::int32_t>(slot) : other);
    }
    for (std::size_t left = slots.size(); left > 1; --left) {
      std::swap(slots[left - 1], slots[random() % left]);
    }
    placement.slot_to_expert.insert(placement.slot_to_expert.end(), slots.begin(), slots.end());
  }
  return placement;
}

// The least lambda over all ways to choose a host for every active expert.
std::int64_t least_lambda_of_all_routings(const std::vector<std::int32_t>& active, const Placement& placement) {
  std::vector<std::int64_t> loads(at(placement.num_ranks), 0);
  std::int64_t least = std::ssize(active);
  const std::function<void(std::size_t)> choose_host = [&](std::size_t idx) {
    if (idx == active.size()) {
      least = std::min(least, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (std::int64_t slot = 0; slot < placement.num_slots(); ++slot) {
      if (placement.layer(0)[at(slot)] == active[idx]) {
        ++loads[at(slot / placement.slots_per_rank)];
        choose_host(idx + 1);
        --loads[at(slot / placement.slots_per_rank)];
      }
    }
  };
  choose_host(0);
  return least;
}

std::int64_t sum_by_router(const ActivationSample& sample, const Placement& placement, std::int64_t layer) {
  const metro::ReplicaMap map(placement.layer(layer), placement.num_experts, placement.num_ranks);
  metro::ExpertRouter router(metro::RoutingPolicy::exact, map);
  std::vector<std::int32_t> expert_to_rank(at(placement.num_experts));
  std::int64_t sum = 0;
  for (std::int64_t step = 0; step < sample.num_steps(); ++step) {
    std::vector<std::int32_t> counts(at(placement.num_experts), 0);
    for (const std::int32_t expert : sample.active_experts(step, layer)) {
      counts[at(expert)] = 1;
    }
    router.route(counts, expert_to_rank);
    sum += router.lambda();
  }
  return sum;
}

}  // namespace

TEST_CASE("a sample holds the experts that were set, per step and layer") {
  ActivationSample sample(2, 3, 70);

  sample.set_active(1, 2, 69);
  sample.set_active(1, 2, 3);
  sample.set_active(1, 2, 3);
  sample.set_active(0, 2, 3);

  CHECK(sample.active_experts(1, 2) == std::vector<std::int32_t>{3, 69});
  CHECK(sample.active_experts(0, 2) == std::vector<std::int32_t>{3});
  CHECK(sample.active_experts(1, 1).empty());
  CHECK(sample.is_active(1, 2, 69));
  CHECK_FALSE(sample.is_active(0, 2, 69));
  CHECK(sample.steps_of_experts(2)[3] == 2);
  CHECK(sample.steps_of_experts(2)[69] == 1);
  CHECK_THROWS_AS(sample.set_active(2, 0, 0), metro::Bug);
  CHECK_THROWS_AS(sample.set_active(0, 3, 0), metro::Bug);
  CHECK_THROWS_AS(sample.set_active(0, 0, 70), metro::Bug);
}

TEST_CASE("expected lambda is the mean over steps of the best of all routings") {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const auto num_experts = static_cast<std::int64_t>(2 + random() % 7);
    const auto num_ranks = static_cast<std::int64_t>(1 + random() % 4);
    const std::int64_t slots = metro::ceil_div(num_experts, num_ranks) + static_cast<std::int64_t>(random() % 2);
    const ActivationSample sample = random_sample(5, 1, num_experts, 60, random);
    const Placement placement = random_placement(1, num_experts, num_ranks, slots, random);
    std::int64_t least = 0;
    std::int64_t bound = 0;
    for (std::int64_t step = 0; step < 5; ++step) {
      const std::vector<std::int32_t> active = sample.active_experts(step, 0);
      least += least_lambda_of_all_routings(active, placement);
      bound += metro::ceil_div(std::ssize(active), num_ranks);
    }

    const auto layers = metro::expected_lambda(sample, placement);

    REQUIRE(layers.size() == 1);
    CHECK(layers[0].expected == Approx(static_cast<double>(least) / 5).epsilon(1e-12));
    CHECK(layers[0].bound == Approx(static_cast<double>(bound) / 5).epsilon(1e-12));
  }
}

TEST_CASE("expected lambda is what the policy exact reaches, up to 1024 ranks") {
  std::mt19937_64 random(6);
  struct Shape {
    std::int64_t num_experts, num_ranks, slots_per_rank;
    std::uint64_t percent_active;
  };
  for (const Shape& shape : {Shape{32, 8, 5, 50}, Shape{128, 32, 5, 30}, Shape{128, 64, 3, 60}, Shape{256, 65, 5, 40},
                             Shape{256, 200, 2, 50}, Shape{512, 300, 2, 50}, Shape{600, 1024, 1, 80}}) {
    const ActivationSample sample = random_sample(20, 2, shape.num_experts, shape.percent_active, random);
    const Placement placement = random_placement(2, shape.num_experts, shape.num_ranks, shape.slots_per_rank, random);

    const auto layers = metro::expected_lambda(sample, placement);

    for (std::int64_t layer = 0; layer < 2; ++layer) {
      CHECK(layers[at(layer)].expected * 20 == Approx(static_cast<double>(sum_by_router(sample, placement, layer))));
    }
  }
}

TEST_CASE("expected lambda is refused beyond 1024 ranks with both numbers") {
  const ActivationSample sample(1, 1, 4);
  const Placement placement = metro::place_trivial(1, 4, 1025, 1);

  expect_error(ExitCode::usage, {"at most 1024 ranks", "not 1025"}, [&] { metro::expected_lambda(sample, placement); });
}

TEST_CASE("the tracked lambda stays the optimum through accepted and refused changes of hosts") {
  std::mt19937_64 random(7);
  constexpr std::int64_t num_experts = 24;
  constexpr std::int64_t num_ranks = 6;
  const ActivationSample sample = random_sample(60, 1, num_experts, 40, random);
  std::vector<RankMask<1>> hosts(num_experts);
  for (std::int64_t expert = 0; expert < num_experts; ++expert) {
    hosts[at(expert)].add(expert % num_ranks);
  }
  LambdaTracker<1> tracker(sample, 0, hosts, num_ranks);
  int num_accepted = 0;

  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<LambdaTracker<1>::HostChange> changes;
    const auto first = static_cast<std::int32_t>(random() % num_experts);
    changes.push_back({first, {}});
    if (random() % 4 > 0) {
      changes.push_back({static_cast<std::int32_t>((first + 1 + static_cast<std::int32_t>(random() % 23)) % 24), {}});
    }
    for (auto& change : changes) {
      change.hosts.add(static_cast<std::int64_t>(random() % num_ranks));
      if (random() % 2 == 0) {
        change.hosts.add(static_cast<std::int64_t>(random() % num_ranks));
      }
    }
    const auto most_growth = static_cast<std::int64_t>(random() % 12) - 4;
    const std::int64_t before = tracker.total();
    auto changed_hosts = hosts;
    for (const auto& change : changes) {
      changed_hosts[at(change.expert)] = change.hosts;
    }

    const bool accepted = tracker.change_hosts(changes, most_growth);
    hosts = accepted ? changed_hosts : hosts;
    num_accepted += accepted ? 1 : 0;

    REQUIRE(tracker.total() == LambdaTracker<1>(sample, 0, hosts, num_ranks).total());
    CHECK(tracker.total() - before <= (accepted ? most_growth : 0));
  }
  CHECK(num_accepted > 300);
  CHECK(num_accepted < 2700);
}
