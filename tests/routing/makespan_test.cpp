// `makespan`: never slower than what it starts from, optimal where a closed form or brute force says what that is.
#include "base/error.hpp"
#include "placement/placement.hpp"
#include "routing/batches.hpp"
#include "routing/instances.hpp"
#include "routing/optimum.hpp"
#include "routing/step_router.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

using metro::MakespanCosts;
using metro::MakespanRouter;
using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::test::Instance;
using Ids = std::vector<std::int32_t>;

namespace {

// Time of the slowest rank, from what every rank has.
std::int64_t time_of(const MakespanCosts& costs, std::span<const std::int32_t> activated,
                     std::span<const std::int64_t> rows) {
  std::int64_t time = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    time = std::max({time, costs.read_fixed + costs.read_per_expert * activated[rank],
                     costs.compute_fixed + costs.compute_per_row * rows[rank]});
  }
  return time;
}

// Checks that the shares are a routing of all rows, and returns its time.
std::int64_t checked_time(const MakespanRouter& router, const ReplicaMap& map, const Ids& counts,
                          const MakespanCosts& costs) {
  Ids activated(static_cast<std::size_t>(map.num_ranks()), 0);
  std::vector<std::int64_t> rows(activated.size(), 0);
  bool is_valid = true;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    const auto shares = router.shares_of(static_cast<std::int64_t>(expert));
    const auto hosts = map.hosts_of(static_cast<std::int64_t>(expert));
    is_valid = is_valid && shares.size() == hosts.size() &&
               std::all_of(shares.begin(), shares.end(), [](std::int64_t share) { return share >= 0; }) &&
               std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == counts[expert];
    for (std::size_t host = 0; host < shares.size() && is_valid; ++host) {
      activated[static_cast<std::size_t>(hosts[host])] += shares[host] > 0 ? 1 : 0;
      rows[static_cast<std::size_t>(hosts[host])] += shares[host];
    }
  }
  REQUIRE(is_valid);
  const std::int64_t time = time_of(costs, activated, rows);
  CHECK(router.time() == time);
  return time;
}

std::int64_t time_of_policy(RoutingPolicy policy, const ReplicaMap& map, const Ids& counts,
                            const MakespanCosts& costs) {
  Ids ids;
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    ids.insert(ids.end(), static_cast<std::size_t>(counts[expert]), static_cast<std::int32_t>(expert));
  }
  Ids slots(ids.size());
  metro::StepRouter router(policy, map, {.costs = costs});
  router.route(ids, 1, Ids(ids.size(), 0), 0, 0, slots);
  return time_of(costs, router.activated(), router.rows());
}

// The least time of all ways to share the rows, by trying all of them.
std::int64_t time_by_brute_force(const Instance& instance, const MakespanCosts& costs) {
  Ids activated(static_cast<std::size_t>(instance.num_ranks), 0);
  std::vector<std::int64_t> rows(activated.size(), 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const std::function<void(std::size_t, std::size_t, std::int32_t)> share = [&](std::size_t expert, std::size_t host,
                                                                                std::int32_t left) {
    if (expert == instance.counts.size()) {
      least = std::min(least, time_of(costs, activated, rows));
      return;
    }
    const std::vector<std::int32_t> hosts = instance.hosts_of(expert);
    const auto next = [&](std::int32_t still_left) {
      if (host + 1 < hosts.size()) {
        share(expert, host + 1, still_left);
      } else if (still_left == 0) {
        share(expert + 1, 0, expert + 1 < instance.counts.size() ? instance.counts[expert + 1] : 0);
      }
    };
    const auto rank = static_cast<std::size_t>(hosts[host]);
    for (std::int32_t part = 0; part <= left; ++part) {
      activated[rank] += part > 0 ? 1 : 0;
      rows[rank] += part;
      next(left - part);
      activated[rank] -= part > 0 ? 1 : 0;
      rows[rank] -= part;
    }
  };
  share(0, 0, instance.counts[0]);
  return least;
}

}  // namespace

TEST_CASE("makespan is never slower than exact or even, and often faster than both") {
  std::mt19937_64 random(41);
  int num_faster = 0;
  for (int round = 0; round < 600; ++round) {
    const metro::test::Size size =
        std::array<metro::test::Size, 4>{{{16, 4, 6}, {64, 8, 12}, {40, 12, 5}, {70, 70, 2}}}[random() % 4];
    Instance instance = metro::test::random_instance(size, 0.1, 0.9, random);
    for (std::int32_t& count : instance.counts) {
      count = static_cast<std::int32_t>(count * static_cast<std::int32_t>(1 + random() % 40));
    }
    const ReplicaMap map(instance.slot_to_expert, size.num_experts, size.num_ranks);
    const MakespanCosts costs{static_cast<std::int64_t>(random() % 5000), static_cast<std::int64_t>(random() % 20000),
                              static_cast<std::int64_t>(random() % 5000), static_cast<std::int64_t>(random() % 300)};
    MakespanRouter router(costs, map);

    router.route(instance.counts);

    const std::int64_t time = checked_time(router, map, instance.counts, costs);
    const std::int64_t best = std::min(time_of_policy(RoutingPolicy::exact, map, instance.counts, costs),
                                       time_of_policy(RoutingPolicy::even, map, instance.counts, costs));
    CHECK(time <= best);
    num_faster += time < best ? 1 : 0;
  }
  CHECK(num_faster > 200);
}

TEST_CASE("where only reading costs, makespan is exact") {
  std::mt19937_64 random(42);
  const MakespanCosts costs{7, 100, 3, 0};
  for (int round = 0; round < 200; ++round) {
    const Instance instance = metro::test::random_instance({64, 8, 12}, 0.1, 0.8, random);
    const ReplicaMap map(instance.slot_to_expert, 64, 8);
    MakespanRouter router(costs, map);

    router.route(instance.counts);

    CHECK(router.time() == 7 + 100 * metro::test::lambda_by_matching(instance));
  }
}

TEST_CASE("where only computing costs, an expert on all ranks is split to within one row") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2, /**/ 0, 3}, 4, 3);
  MakespanRouter router({0, 0, 50, 10}, map);

  router.route(Ids{100, 7, 0, 2});

  CHECK(router.time() == 50 + 10 * 37);  // 109 rows on three ranks
}

TEST_CASE("many ranks in a chain are levelled by passing rows on") {
  // Expert i on ranks i and i + 1; all rows begin at one end.
  constexpr std::int32_t num_ranks = 70;
  Ids slot_to_expert;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    slot_to_expert.push_back(rank > 0 ? rank - 1 : -1);
    slot_to_expert.push_back(rank + 1 < num_ranks ? rank : -1);
  }
  const ReplicaMap map(slot_to_expert, num_ranks - 1, num_ranks);
  Ids counts(num_ranks - 1, 100);
  MakespanRouter router({0, 0, 0, 1}, map);

  router.route(counts);

  CHECK(router.time() == 99);  // 6900 rows on 70 ranks
}

TEST_CASE("makespan is the optimum on most small problems and close to it on the others") {
  std::mt19937_64 random(43);
  double sum_of_ratios = 0.0;
  int num_optimal = 0;
  constexpr int num_rounds = 300;
  for (int round = 0; round < num_rounds; ++round) {
    const auto num_ranks = static_cast<std::int64_t>(2 + random() % 2);
    const auto num_experts = static_cast<std::int64_t>(2 + random() % 3);
    Instance instance = metro::test::random_instance({num_experts, num_ranks, 3}, 0.2, 0.9, random);
    const ReplicaMap map(instance.slot_to_expert, num_experts, num_ranks);
    const MakespanCosts costs{static_cast<std::int64_t>(random() % 10), static_cast<std::int64_t>(random() % 40),
                              static_cast<std::int64_t>(random() % 10), static_cast<std::int64_t>(1 + random() % 9)};
    MakespanRouter router(costs, map);

    router.route(instance.counts);

    const std::int64_t least = time_by_brute_force(instance, costs);
    CHECK(router.time() >= least);
    num_optimal += router.time() == least ? 1 : 0;
    sum_of_ratios += static_cast<double>(router.time() + 1) / static_cast<double>(least + 1);
  }
  CHECK(num_optimal > num_rounds * 8 / 10);
  CHECK(sum_of_ratios < 1.03 * num_rounds);
}

TEST_CASE("without rows makespan takes the fixed times only") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2}, 3, 2);
  MakespanRouter router({70, 5, 30, 1}, map);

  router.route(Ids{0, 0, 0});

  CHECK(router.time() == 70);
}

TEST_CASE("the default costs balance at 157 rows per expert") {
  const MakespanCosts costs;

  CHECK(costs.of(10, 1570) == 147800);
  CHECK(costs.of(10, 1580) == 148520);
}

TEST_CASE("costs below zero or beyond the largest, and counts of the wrong length are bugs") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2}, 3, 2);

  CHECK_THROWS_AS(MakespanRouter({-1, 1, 1, 1}, map), metro::Bug);
  CHECK_THROWS_AS(MakespanRouter({1, 1, 1, MakespanCosts::largest + 1}, map), metro::Bug);
  MakespanRouter router({1, 1, 1, 1}, map);
  CHECK_THROWS_AS(router.route(Ids{1, 1}), metro::Bug);
}
