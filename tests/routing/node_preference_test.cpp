// The preference of `exact` for the own node: lambda stays, the rows that leave are the least by brute force.
#include "routing/batches.hpp"
#include "routing/instances.hpp"
#include "routing/optimum.hpp"
#include "routing/step_router.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <limits>

using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::StepRouter;
using metro::test::Batch;
using metro::test::Instance;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int64_t ranks_per_node = 2;

// Rows (assignments) that are served on another node than they come from.
std::int64_t rows_leaving(const Batch& batch, const Ids& slots, std::int64_t slots_per_rank) {
  std::int64_t leaving = 0;
  for (std::size_t idx = 0; idx < slots.size(); ++idx) {
    const std::int64_t source = batch.row_to_rank[idx / static_cast<std::size_t>(batch.top_k)];
    leaving += slots[idx] / slots_per_rank / ranks_per_node != source / ranks_per_node ? 1 : 0;
  }
  return leaving;
}

// The fewest rows that leave their node over all assignments with the smallest lambda.
std::int64_t fewest_leaving(const Instance& instance, const Batch& batch) {
  const std::int32_t lambda = metro::test::lambda_by_brute_force(instance);
  const auto active = instance.active_experts();
  const Ids of_ranks = batch.counts_of_ranks(instance.num_experts, instance.num_ranks);
  Ids activated(static_cast<std::size_t>(instance.num_ranks), 0);
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  const std::function<void(std::size_t, std::int64_t)> place_from = [&](std::size_t idx, std::int64_t leaving) {
    if (idx == active.size()) {
      fewest = std::min(fewest, leaving);
      return;
    }
    for (const std::int32_t rank : instance.hosts_of(active[idx])) {
      std::int64_t leaving_here = 0;
      for (std::int64_t source = 0; source < instance.num_ranks; ++source) {
        leaving_here += source / ranks_per_node != rank / ranks_per_node
                            ? of_ranks[static_cast<std::size_t>(source * instance.num_experts) + active[idx]]
                            : 0;
      }
      if (activated[static_cast<std::size_t>(rank)] < lambda) {
        ++activated[static_cast<std::size_t>(rank)];
        place_from(idx + 1, leaving + leaving_here);
        --activated[static_cast<std::size_t>(rank)];
      }
    }
  };
  place_from(0, 0);
  return fewest;
}

struct Outcome {
  std::int32_t lambda = 0;
  std::int64_t leaving = 0;
  std::int64_t most_rows = 0;
};

Outcome route(const ReplicaMap& map, const Batch& batch, const Ids& rank_to_node) {
  StepRouter router(RoutingPolicy::exact, map, {.rank_to_node = rank_to_node, .prefer_own_node = true});
  Ids slots(batch.expert_ids.size());
  router.route(batch.expert_ids, batch.top_k, batch.row_to_rank, 0, 0, slots);
  return {router.lambda(), rows_leaving(batch, slots, map.slots_per_rank()),
          *std::max_element(router.rows().begin(), router.rows().end())};
}

}  // namespace

TEST_CASE("exact on several nodes has the smallest lambda and, with it, the fewest rows leaving their node") {
  std::mt19937_64 random(51);
  int num_better = 0;
  for (int round = 0; round < 400; ++round) {
    Instance instance = metro::test::random_instance({8, 4, 5}, 0.2, 1.0, random);
    const Batch batch = metro::test::random_batch(
        8, 2, std::vector<std::int64_t>{static_cast<std::int64_t>(random() % 9), 2, 0, 3}, random);
    instance.counts = batch.counts(8);
    const ReplicaMap map(instance.slot_to_expert, 8, 4);

    const Outcome near = route(map, batch, metro::nodes_of_size(4, ranks_per_node));

    CHECK(near.lambda == metro::test::lambda_by_brute_force(instance));
    CHECK(near.leaving == fewest_leaving(instance, batch));
    num_better += near.leaving < route(map, batch, {}).leaving ? 1 : 0;
  }
  CHECK(num_better > 100);
}

TEST_CASE("at full size the preference keeps lambda and lowers the rows that leave") {
  std::mt19937_64 random(52);
  const metro::test::Size size = GENERATE(metro::test::Size{256, 16, 24}, metro::test::Size{512, 144, 5});
  std::int64_t leaving_before = 0;
  std::int64_t leaving_after = 0;
  for (int round = 0; round < 20; ++round) {
    Instance instance = metro::test::random_instance(size, 0.0, 1.0, random);
    const Batch batch = metro::test::random_batch(
        size.num_experts, 8, std::vector<std::int64_t>(static_cast<std::size_t>(size.num_ranks), 4), random);
    instance.counts = batch.counts(size.num_experts);
    const ReplicaMap map(instance.slot_to_expert, size.num_experts, size.num_ranks);

    const Outcome far = route(map, batch, {});
    const Outcome near = route(map, batch, metro::nodes_of_size(size.num_ranks, ranks_per_node));

    CHECK(near.lambda == metro::test::lambda_by_matching(instance));
    CHECK(near.leaving <= far.leaving);
    leaving_before += far.leaving;
    leaving_after += near.leaving;
  }
  CHECK(leaving_after < leaving_before);
}

TEST_CASE("where no row leaves more, rows are levelled") {
  // Experts 0..3 on both ranks of node 0, all rows from there: 9 + 1 and 8 + 2 rows, not 9 + 8 and 1 + 2.
  const ReplicaMap map(Ids{0, 1, 2, 3, /**/ 0, 1, 2, 3, /**/ 4, -1, -1, -1, /**/ 4, -1, -1, -1}, 5, 4);
  Batch batch{1, {}, {}};
  for (const auto& [expert, count] : std::vector<std::pair<std::int32_t, int>>{{0, 9}, {1, 1}, {2, 8}, {3, 2}}) {
    batch.expert_ids.insert(batch.expert_ids.end(), static_cast<std::size_t>(count), expert);
  }
  batch.row_to_rank.assign(20, 0);

  const Outcome outcome = route(map, batch, metro::nodes_of_size(4, ranks_per_node));

  CHECK(outcome.lambda == 2);
  CHECK(outcome.leaving == 0);
  CHECK(outcome.most_rows == 10);
}

TEST_CASE("on one node exact is the same with and without nodes") {
  std::mt19937_64 random(53);
  const Instance instance = metro::test::random_instance({32, 4, 12}, 0.0, 1.0, random);
  const ReplicaMap map(instance.slot_to_expert, 32, 4);
  const Batch batch = metro::test::random_batch(32, 4, std::vector<std::int64_t>{3, 4, 5, 6}, random);
  Ids slots(batch.expert_ids.size());
  Ids slots_on_one_node(batch.expert_ids.size());

  StepRouter(RoutingPolicy::exact, map).route(batch.expert_ids, 4, batch.row_to_rank, 0, 0, slots);
  StepRouter(RoutingPolicy::exact, map, {.rank_to_node = {0, 0, 0, 0}, .prefer_own_node = true})
      .route(batch.expert_ids, 4, batch.row_to_rank, 0, 0, slots_on_one_node);

  CHECK(slots == slots_on_one_node);
}
