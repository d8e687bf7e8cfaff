#include "placement/activation_aware.hpp"

#include "base/file.hpp"
#include "base/integers.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>

using metro::ActivationAwareOptions;
using metro::ActivationSample;
using metro::at;
using metro::ExitCode;
using metro::Placement;
using metro::test::expect_error;

namespace {

// Experts come in groups that are active together: what EPLB cannot see.
ActivationSample grouped_sample(std::int64_t num_steps, std::int64_t num_layers, std::int64_t num_experts,
                                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ActivationSample sample(num_steps, num_layers, num_experts);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    for (std::int64_t layer = 0; layer < num_layers; ++layer) {
      const auto group = static_cast<std::int64_t>(random() % 4);
      for (std::int64_t expert = 0; expert < num_experts; ++expert) {
        const std::uint64_t percent = (expert + layer) % 4 == group ? 80 : 15;
        if (random() % 100 < percent) {
          sample.set_active(step, layer, expert);
        }
      }
    }
  }
  return sample;
}

double sum_of_expected(const ActivationSample& sample, const Placement& placement) {
  double sum = 0.0;
  for (const metro::LayerLambda& layer : metro::expected_lambda(sample, placement)) {
    sum += layer.expected;
  }
  return sum;
}

Placement eplb_of(const ActivationSample& sample, std::int64_t num_ranks, std::int64_t slots_per_rank) {
  std::vector<std::int64_t> loads;
  for (std::int64_t layer = 0; layer < sample.num_layers(); ++layer) {
    const auto steps = sample.steps_of_experts(layer);
    loads.insert(loads.end(), steps.begin(), steps.end());
  }
  return metro::place_eplb(loads, sample.num_layers(), sample.num_experts(), 1, 1, num_ranks, slots_per_rank);
}

ActivationAwareOptions with_seed(std::uint64_t seed) {
  ActivationAwareOptions options;
  options.seed = seed;
  options.moves_per_slot = 200;
  return options;
}

// The least expected lambda of all ways to fill the slots of one layer.
double best_of_all_placements(const ActivationSample& sample, std::int64_t num_ranks, std::int64_t slots_per_rank) {
  Placement placement{1, sample.num_experts(), num_ranks, slots_per_rank, {}};
  placement.slot_to_expert.assign(at(placement.num_slots()), 0);
  double best = 1e9;
  const std::function<void(std::size_t)> fill = [&](std::size_t slot) {
    if (slot == placement.slot_to_expert.size()) {
      const std::set<std::int32_t> held(placement.slot_to_expert.begin(), placement.slot_to_expert.end());
      if (std::ssize(held) == sample.num_experts()) {
        best = std::min(best, metro::expected_lambda(sample, placement)[0].expected);
      }
      return;
    }
    for (std::int32_t expert = 0; expert < sample.num_experts(); ++expert) {
      placement.slot_to_expert[slot] = expert;
      fill(slot + 1);
    }
  };
  fill(0);
  return best;
}

// Batches of `batch_size` tokens of different requests of the excerpt, of even or odd requests.
ActivationSample recorded_sample(std::int64_t batch_size, std::int64_t num_steps, std::uint64_t parity,
                                 std::uint64_t seed) {
  constexpr std::int64_t num_layers = 4;
  constexpr std::int64_t top_k = 4;
  constexpr std::uint64_t tokens_per_request = 128;
  const std::string ids =
      metro::read_file(std::string(METRO_TEST_DATA) + "/routing/gptoss20b_plan/experts.u8", ExitCode::input);
  ActivationSample sample(num_steps, num_layers, 32);
  std::mt19937_64 random(seed);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    std::set<std::uint64_t> requests;
    while (std::ssize(requests) < batch_size) {
      requests.insert(random() % 32 * 2 + parity);
    }
    for (const std::uint64_t request : requests) {
      const std::uint64_t token = request * tokens_per_request + random() % tokens_per_request;
      for (std::int64_t i = 0; i < num_layers * top_k; ++i) {
        const auto expert = ids.at(token * num_layers * top_k + static_cast<std::uint64_t>(i));
        sample.set_active(step, i / top_k, expert);
      }
    }
  }
  return sample;
}

}  // namespace

TEST_CASE("on small problems the activation-aware placement is the best of all placements") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const ActivationSample sample = grouped_sample(40, 1, seed % 2 == 0 ? 4 : 5, seed);
    const std::int64_t num_ranks = seed % 2 == 0 ? 3 : 2;
    const std::int64_t slots_per_rank = seed % 2 == 0 ? 2 : 3;

    const Placement placement = metro::place_activation_aware(sample, {}, num_ranks, slots_per_rank, with_seed(seed));

    CHECK(sum_of_expected(sample, placement) ==
          Approx(best_of_all_placements(sample, num_ranks, slots_per_rank)).epsilon(1e-12));
  }
}

TEST_CASE("an activation-aware placement fills all slots, holds every expert, and no expert twice on a rank") {
  const ActivationSample sample = grouped_sample(200, 3, 24, 1);

  const Placement placement = metro::place_activation_aware(sample, {}, 6, 5, with_seed(1));

  CHECK_NOTHROW(metro::check_placement(placement, 3, 24, 6, "test"));
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::int64_t rank = 0; rank < 6; ++rank) {
      const auto slots = placement.layer(layer).subspan(at(rank * 5), 5);
      CHECK(std::set<std::int32_t>(slots.begin(), slots.end()).size() == 5);
      CHECK(std::find(slots.begin(), slots.end(), Placement::empty_slot) == slots.end());
    }
  }
}

TEST_CASE("an activation-aware placement is never worse than EPLB on its sample, however short the search") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const ActivationSample sample = grouped_sample(100, 2, 16, seed);
    const double eplb = sum_of_expected(sample, eplb_of(sample, 4, 6));
    for (const std::int64_t moves : {0, 1, 20, 200}) {
      ActivationAwareOptions options = with_seed(seed);
      options.moves_per_slot = moves;

      const double aware = sum_of_expected(sample, metro::place_activation_aware(sample, {}, 4, 6, options));

      CHECK(aware <= eplb);
      CHECK((moves < 200 || aware < eplb));
    }
  }
}

TEST_CASE("equal seeds give equal activation-aware placements, whatever the number of threads") {
  const ActivationSample sample = grouped_sample(100, 5, 16, 3);
  ActivationAwareOptions options = with_seed(9);
  const Placement placement = metro::place_activation_aware(sample, {}, 4, 5, options);
  options.num_threads = 3;

  const Placement again = metro::place_activation_aware(sample, {}, 4, 5, options);

  CHECK(again.slot_to_expert == placement.slot_to_expert);
  CHECK(metro::place_activation_aware(sample, {}, 4, 5, with_seed(10)).slot_to_expert != placement.slot_to_expert);
}

TEST_CASE("progress counts every move of the search once") {
  const ActivationSample sample = grouped_sample(10, 3, 8, 3);
  for (const bool spread : {false, true}) {
    ActivationAwareOptions options = with_seed(9);
    options.spread_over_layers = spread;
    options.num_threads = 2;
    std::int64_t last = 0;
    std::int64_t expected_total = 0;
    bool ascends = true;

    metro::place_activation_aware(sample, {}, 4, 3, options, [&](std::int64_t done, std::int64_t total) {
      ascends = ascends && done > last && done <= total;
      last = done;
      expected_total = total;
    });

    CHECK(ascends);
    CHECK(last == expected_total);
    CHECK((spread || last == 200 * 4 * 3 * 3));
  }
}

TEST_CASE("a budget spread over layers goes where replicas lower lambda, in the same number of slots") {
  // Layer 0 has one active expert per step, which no replica can speed up; layer 1 has half of its 12.
  std::mt19937_64 random(2);
  ActivationSample sample(200, 2, 12);
  for (std::int64_t step = 0; step < 200; ++step) {
    sample.set_active(step, 0, static_cast<std::int64_t>(random() % 12));
    for (int i = 0; i < 6; ++i) {
      sample.set_active(step, 1, static_cast<std::int64_t>(random() % 12));
    }
  }
  ActivationAwareOptions options = with_seed(4);
  const Placement even = metro::place_activation_aware(sample, {}, 4, 4, options);
  options.spread_over_layers = true;

  const Placement spread = metro::place_activation_aware(sample, {}, 4, 4, options);

  CHECK(spread.slots_per_rank == 5);
  const auto is_empty = [](std::int32_t expert) { return expert == Placement::empty_slot; };
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto slots = spread.layer(0).subspan(at(rank * 5), 5);
    CHECK(std::count_if(slots.begin(), slots.begin() + 3, is_empty) == 0);
    CHECK(std::count_if(slots.begin() + 3, slots.end(), is_empty) == 2);
  }
  CHECK(std::none_of(spread.layer(1).begin(), spread.layer(1).end(), is_empty));
  CHECK_NOTHROW(metro::check_placement(spread, 2, 12, 4, "test"));
  CHECK(sum_of_expected(sample, spread) < sum_of_expected(sample, even));
}

TEST_CASE("replicas of an expert go to different nodes where that costs nothing") {
  // One active expert per step: lambda is 1 whatever the placement. With 1024 steps a replica on a node that has the
  // expert already costs one step's worth.
  ActivationSample sample(1024, 1, 8);
  for (std::int64_t step = 0; step < 1024; ++step) {
    sample.set_active(step, 0, step % 8);
  }
  ActivationAwareOptions options = with_seed(1);
  options.num_nodes = 2;
  options.moves_per_slot = 2000;

  const Placement placement = metro::place_activation_aware(sample, {}, 4, 4, options);

  for (std::int64_t node = 0; node < 2; ++node) {
    const auto slots = placement.layer(0).subspan(at(node * 8), 8);
    CHECK(std::set<std::int32_t>(slots.begin(), slots.end()).size() == 8);
  }
}

TEST_CASE("an activation-aware placement can be made from loads without any step") {
  const std::vector<std::int64_t> loads{5, 1, 9, 2, 4, 3};

  const Placement placement =
      metro::place_activation_aware(ActivationSample(0, 1, 6), loads, 3, 3, ActivationAwareOptions());

  CHECK_NOTHROW(metro::check_placement(placement, 1, 6, 3, "test"));
}

TEST_CASE("sizes at the edge work: fewer experts than ranks, one rank, ranks that hold everything") {
  const ActivationSample sample = grouped_sample(30, 2, 4, 5);

  for (const auto& [num_ranks, slots] : {std::pair<std::int64_t, std::int64_t>{8, 1}, {1, 4}, {1, 9}, {3, 4}, {2, 7}}) {
    const Placement placement = metro::place_activation_aware(sample, {}, num_ranks, slots, with_seed(1));

    CHECK_NOTHROW(metro::check_placement(placement, 2, 4, num_ranks, "test"));
    CHECK(placement.slots_per_rank == slots);
  }
}

TEST_CASE("too few slots or too many ranks for an activation-aware placement are refused with what works") {
  const ActivationSample sample(3, 1, 10);

  expect_error(ExitCode::usage, {"slots_per_rank = 2", "10 experts", "4 ranks", "smallest value that works is 3"},
               [&] { metro::place_activation_aware(sample, {}, 4, 2, {}); });
  expect_error(ExitCode::usage, {"at most 1024 ranks", "2000"},
               [&] { metro::place_activation_aware(sample, {}, 2000, 1, {}); });
}

TEST_CASE("planned on even requests of a real trace, the placement serves odd ones better than EPLB") {
  const ActivationSample train = recorded_sample(6, 1500, 0, 1);
  ActivationAwareOptions options = with_seed(1);
  options.moves_per_slot = 100;
  const Placement eplb = eplb_of(train, 8, 6);
  const Placement aware = metro::place_activation_aware(train, {}, 8, 6, options);
  const ActivationSample test = recorded_sample(6, 1000, 1, 2);
  double bound = 0.0;
  for (const metro::LayerLambda& layer : metro::expected_lambda(test, aware)) {
    bound += layer.bound;
  }

  const double gap_of_eplb = sum_of_expected(test, eplb) - bound;
  const double gap = sum_of_expected(test, aware) - bound;

  CHECK(gap_of_eplb > 0.2);
  CHECK(gap < 0.5 * gap_of_eplb);
}
