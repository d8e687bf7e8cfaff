// StepRouter: what holds for every policy, and what it adds to the policies' own functions.
#include "routing/step_router.hpp"
#include "base/error.hpp"
#include "routing/activated_slots.hpp"
#include "routing/batches.hpp"
#include "routing/instances.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

using metro::ReplicaMap;
using metro::RoutingPolicy;
using metro::RowNumbering;
using metro::StepRouter;
using metro::StepRouterOptions;
using metro::test::Batch;
using metro::test::Instance;
using Ids = std::vector<std::int32_t>;

namespace {

struct Problem {
  Instance instance;
  ReplicaMap map;
  Batch batch;

  Problem(const metro::test::Size& size, std::int64_t top_k, const std::vector<std::int64_t>& rows_of_rank,
          std::mt19937_64& random)
      : instance(metro::test::random_instance(size, 0.2, 1.0, random)),
        map(instance.slot_to_expert, size.num_experts, size.num_ranks),
        batch(metro::test::random_batch(size.num_experts, top_k, rows_of_rank, random)) {}
};

Ids route(StepRouter& router, const Batch& batch, std::int64_t step = 0, std::int64_t layer = 0) {
  Ids slots(batch.expert_ids.size(), 1234);
  router.route(batch.expert_ids, batch.top_k, batch.row_to_rank, step, layer, slots);
  return slots;
}

// Checks that every assignment has a slot of its expert, and the router's account of them.
void check_account(const StepRouter& router, const Problem& problem, const Ids& slots) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.map.num_ranks()), 0);
  bool is_valid = slots.size() == problem.batch.expert_ids.size();
  for (std::size_t idx = 0; idx < slots.size() && is_valid; ++idx) {
    is_valid = slots[idx] >= 0 && slots[idx] < problem.map.num_slots() &&
               problem.instance.slot_to_expert[static_cast<std::size_t>(slots[idx])] == problem.batch.expert_ids[idx];
    if (is_valid) {
      ++rows[static_cast<std::size_t>(slots[idx] / problem.map.slots_per_rank())];
    }
  }
  REQUIRE(is_valid);
  CHECK(std::equal(rows.begin(), rows.end(), router.rows().begin(), router.rows().end()));
  const Ids activated = metro::test::activated_slots(problem.map, slots);
  CHECK(std::equal(activated.begin(), activated.end(), router.activated().begin(), router.activated().end()));
  CHECK(router.lambda() == *std::max_element(activated.begin(), activated.end()));
}

RoutingPolicy any_policy() {
  const auto policies = metro::routing_policies();
  return GENERATE_COPY(from_range(policies.begin(), policies.end()));
}

}  // namespace

TEST_CASE("under every policy each assignment has a slot of its expert, and the account of them is right") {
  const RoutingPolicy policy = any_policy();
  const RowNumbering numbering = GENERATE(RowNumbering::all_rows, RowNumbering::own_rows);
  CAPTURE(metro::name_of(policy), numbering == RowNumbering::own_rows);
  std::mt19937_64 random(21);
  for (const metro::test::Size size :
       {metro::test::Size{8, 1, 12}, {16, 4, 6}, {12, 16, 2}, {64, 6, 16}, {40, 70, 2}}) {
    std::vector<std::int64_t> rows_of_rank(static_cast<std::size_t>(size.num_ranks));
    std::generate(rows_of_rank.begin(), rows_of_rank.end(), [&] { return static_cast<std::int64_t>(random() % 5); });
    const Problem problem(size, 4, rows_of_rank, random);
    StepRouter router(policy, problem.map, {.numbering = numbering, .seed = 3, .costs = {}, .rank_to_node = {}});

    const Ids slots = route(router, problem.batch);

    check_account(router, problem, slots);
  }
}

TEST_CASE("routing again gives the same slots, whatever was routed in between") {
  const RoutingPolicy policy = any_policy();
  CAPTURE(metro::name_of(policy));
  std::mt19937_64 random(22);
  const Problem problem({32, 4, 12}, 4, {7, 0, 5, 9}, random);
  const Batch other = metro::test::random_batch(32, 4, std::vector<std::int64_t>{1, 40, 3, 2}, random);
  StepRouter router(policy, problem.map);
  const Ids first = route(router, problem.batch, 5, 2);

  route(router, other, 6, 1);

  CHECK(route(router, problem.batch, 5, 2) == first);
  StepRouter fresh(policy, problem.map);
  CHECK(route(fresh, problem.batch, 5, 2) == first);
}

TEST_CASE("a rank that routes its own rows finds what routing all rows finds for them") {
  const RoutingPolicy policy = any_policy();
  const std::int64_t ranks_per_node = GENERATE(2, 6);
  CAPTURE(metro::name_of(policy), ranks_per_node);
  std::mt19937_64 random(23);
  for (int round = 0; round < 20; ++round) {
    const Problem problem({48, 6, 12}, 4, {3, 0, 60, 1, 17, 40}, random);
    const StepRouterOptions options{.numbering = RowNumbering::own_rows,
                                    .seed = 9,
                                    .costs = {},
                                    .rank_to_node = metro::nodes_of_size(6, ranks_per_node),
                                    .prefer_own_node = true};
    StepRouter all(policy, problem.map, options);
    const Ids slots = route(all, problem.batch, 4, 7);
    const Ids counts = problem.batch.counts_of_ranks(48, 6);
    Ids joined;

    for (std::int64_t rank = 0; rank < 6; ++rank) {
      StepRouter own(policy, problem.map, options);
      const Ids ids = problem.batch.ids_of(rank);
      Ids own_slots(ids.size());
      own.route_own(ids, 4, rank, metro::needs_counts_of_all_ranks(policy) ? counts : Ids{}, 4, 7, own_slots);
      joined.insert(joined.end(), own_slots.begin(), own_slots.end());
      if (metro::needs_counts_of_all_ranks(policy)) {
        CHECK(std::equal(own.activated().begin(), own.activated().end(), all.activated().begin()));
        CHECK(std::equal(own.rows().begin(), own.rows().end(), all.rows().begin()));
      }
    }

    CHECK(joined == slots);
  }
}

TEST_CASE("padding rows and ids that are no experts get no slot and change nothing else") {
  const RoutingPolicy policy = any_policy();
  CAPTURE(metro::name_of(policy));
  std::mt19937_64 random(24);
  const Problem problem({32, 4, 12}, 4, {0, 3, 0, 2}, random);
  Batch padded = problem.batch;
  for (const std::int32_t id : {-1, 32, 2147483647, -2147483647 - 1}) {
    padded.expert_ids.insert(padded.expert_ids.end(), 4, id);
    padded.row_to_rank.push_back(3);
  }
  StepRouter router(policy, problem.map);
  const Ids slots = route(router, problem.batch);
  StepRouter router_of_padded(policy, problem.map);

  const Ids padded_slots = route(router_of_padded, padded);

  CHECK(std::equal(slots.begin(), slots.end(), padded_slots.begin()));
  CHECK(
      std::all_of(padded_slots.begin() + std::ssize(slots), padded_slots.end(), [](auto slot) { return slot == -1; }));
  CHECK(std::equal(router.activated().begin(), router.activated().end(), router_of_padded.activated().begin()));
  CHECK(std::equal(router.rows().begin(), router.rows().end(), router_of_padded.rows().begin()));
}

TEST_CASE("without rows nothing is activated under any policy") {
  const RoutingPolicy policy = any_policy();
  std::mt19937_64 random(25);
  const Problem problem({32, 4, 12}, 4, {1, 1, 1, 1}, random);
  StepRouter router(policy, problem.map);
  route(router, problem.batch);

  CHECK(route(router, {4, {}, {}}).empty());

  CHECK(router.lambda() == 0);
  CHECK(std::accumulate(router.rows().begin(), router.rows().end(), std::int64_t{0}) == 0);
}

TEST_CASE("the largest sizes are routed: 1024 experts on 1024 ranks") {
  const RoutingPolicy policy = any_policy();
  CAPTURE(metro::name_of(policy));
  std::mt19937_64 random(26);
  const Problem problem({1024, 1024, 2}, 8, std::vector<std::int64_t>(1024, 1), random);
  StepRouter router(policy, problem.map);

  check_account(router, problem, route(router, problem.batch));
}

TEST_CASE("one expert with all rows: expert-granular policies activate one replica, even all of them") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2, /**/ 0, 3, /**/ 0, 4}, 5, 4);
  const Batch batch{1, Ids(1000, 0), Ids(1000, 2)};

  for (const RoutingPolicy policy : metro::routing_policies()) {
    StepRouter router(policy, map);
    route(router, batch);
    CAPTURE(metro::name_of(policy));
    const auto sum = std::accumulate(router.activated().begin(), router.activated().end(), 0);
    CHECK(std::accumulate(router.rows().begin(), router.rows().end(), std::int64_t{0}) == 1000);
    CHECK(router.lambda() == 1);
    if (metro::is_expert_granular(policy)) {
      CHECK(sum == 1);
    }
    if (policy == RoutingPolicy::even || policy == RoutingPolicy::vllm_modulo) {
      CHECK(sum == 4);
      CHECK(router.rows()[0] == 250);
    }
    if (policy == RoutingPolicy::static_choice || policy == RoutingPolicy::local) {
      CHECK(router.rows()[2] == 1000);  // where the rows come from
    }
  }
}

TEST_CASE("nodes of equal size are numbered through") {
  CHECK(metro::nodes_of_size(5, 2) == Ids{0, 0, 1, 1, 2});
  CHECK(metro::nodes_of_size(3, 8) == Ids{0, 0, 0});
}

TEST_CASE("rows out of rank order, ranks that do not exist and arrays of the wrong length are bugs") {
  const ReplicaMap map(Ids{0, 1, /**/ 0, 2}, 3, 2);
  StepRouter router(RoutingPolicy::even, map);
  Ids slots(4);

  CHECK_THROWS_AS(router.route(Ids{0, 1, 0, 1}, 2, Ids{1, 0}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(router.route(Ids{0, 1, 0, 1}, 2, Ids{0, 2}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(router.route(Ids{0, 1, 0, 1}, 2, Ids{-1, 0}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(router.route(Ids{0, 1, 0, 1}, 2, Ids{0}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(router.route(Ids{0, 1}, 2, Ids{0}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(router.route(Ids{0, 1, 0, 1}, 0, Ids{0}, 0, 0, slots), metro::Bug);
  // Nobody can number through all rows who has only some of them.
  CHECK_THROWS_AS(router.route_own(Ids{0, 1, 0, 1}, 2, 0, {}, 0, 0, slots), metro::Bug);
  StepRouter exact(RoutingPolicy::exact, map, {.numbering = RowNumbering::own_rows});
  CHECK_THROWS_AS(exact.route_own(Ids{0, 1, 0, 1}, 2, 0, Ids{1, 1, 1}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(exact.route_own(Ids{0, 1, 0, 1}, 2, 2, Ids{1, 1, 1, 1, 1, 1}, 0, 0, slots), metro::Bug);
  CHECK_THROWS_AS(StepRouter(RoutingPolicy::exact, map, {.rank_to_node = {0, 0, 0}}), metro::Bug);
}
