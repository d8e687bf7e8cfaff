// The routing step against src/routing and the definitions of its lists, for every team size that Kokkos allows here:
// one with its Serial backend, more with a threaded one (tests/threaded_kokkos.sh).
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "routing_step_data.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

using metro::RoutingStep;
using metro::RoutingTables;
using metro::StepPolicy;
using metro::test::checksum_of;
using metro::test::DeviceRows;
using metro::test::expected_lists;
using metro::test::Ids;
using metro::test::lists_of;
using metro::test::Size;
using metro::test::StepLists;
using metro::test::StepProblem;
using metro::test::team_sizes;
using nlohmann::json;

namespace {

constexpr std::array<StepPolicy, 4> all_policies{StepPolicy::metro, StepPolicy::metro_scarce, StepPolicy::exact,
                                                 StepPolicy::even};

Ids flattened(const json& rows) {
  Ids values;
  for (const json& row : rows) {
    for (const json& value : row) {
      values.push_back(value.get<std::int32_t>());
    }
  }
  return values;
}

std::vector<json> reference_problems() {
  const std::string path = METRO_TEST_DATA "/routing/policies.json";
  return metro::parse_json(metro::read_file(path, metro::ExitCode::input), path, metro::ExitCode::input);
}

// The rows in order, about as many for each rank.
StepProblem problem_of(const json& reference) {
  StepProblem problem{reference.at("num_experts"),
                      reference.at("num_ranks"),
                      flattened(reference.at("physical_to_logical")),
                      {reference.at("top_k"), flattened(reference.at("topk_idx")), {}}};
  const auto num_rows = std::ssize(problem.batch.expert_ids) / problem.batch.top_k;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    problem.batch.row_to_rank.push_back(static_cast<std::int32_t>(row * problem.num_ranks / num_rows));
  }
  return problem;
}

// Some ranks have no rows and some ids are padding; a share of the slots is empty, others are duplicates on one rank.
StepProblem random_problem(const Size& size, std::int64_t top_k, std::int64_t most_rows_of_rank,
                           std::mt19937_64& random) {
  StepProblem problem{
      size.num_experts, size.num_ranks, metro::test::random_instance(size, 0.1, 1.0, random).slot_to_expert, {}};
  std::vector<std::int64_t> rows_of_rank;
  for (std::int64_t rank = 0; rank < size.num_ranks; ++rank) {
    rows_of_rank.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most_rows_of_rank + 1)));
  }
  problem.batch = metro::test::random_batch(size.num_experts, top_k, rows_of_rank, random);
  const std::array<std::int32_t, 4> paddings{-1, static_cast<std::int32_t>(size.num_experts), 1 << 30, -(1 << 30)};
  for (std::int32_t& id : problem.batch.expert_ids) {
    id = random() % 16 == 0 ? paddings[random() % 4] : id;
  }
  return problem;
}

// Every expert on a rank and on the next one, popular ones side by side: they can only be handed on from rank to rank.
StepProblem ring_problem(std::int64_t num_ranks, std::int64_t experts_per_rank, std::int64_t rows_of_rank,
                         std::mt19937_64& random) {
  const std::int64_t num_experts = num_ranks * experts_per_rank;
  StepProblem problem{num_experts, num_ranks, {}, {}};
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    for (std::int64_t i = 0; i < 2 * experts_per_rank; ++i) {
      const std::int64_t holder = i < experts_per_rank ? rank : (rank + num_ranks - 1) % num_ranks;
      problem.slot_to_expert.push_back(static_cast<std::int32_t>(holder * experts_per_rank + i % experts_per_rank));
    }
  }
  problem.batch = metro::test::random_batch(
      num_experts, 2, std::vector<std::int64_t>(static_cast<std::size_t>(num_ranks), rows_of_rank), random);
  return problem;
}

StepLists routed(StepPolicy policy, const StepProblem& problem, std::int64_t rank, int team_size) {
  RoutingStep step(policy, problem.sizes(), team_size);
  const DeviceRows rows(problem);
  step.route(problem.tables(rank), rows.rows());
  return lists_of(step, problem, rank);
}

// Every list apart, so that a failure names it.
void check_equal(const StepLists& computed, const StepLists& expected) {
  CHECK(computed.rows_of_expert == expected.rows_of_expert);
  CHECK(computed.expert_to_rank == expected.expert_to_rank);
  CHECK(computed.slots == expected.slots);
  CHECK(computed.activated == expected.activated);
  CHECK(computed.served_by_rank == expected.served_by_rank);
  CHECK(computed.lambda == expected.lambda);
  CHECK(computed.work_begin == expected.work_begin);
  CHECK(computed.work == expected.work);
  CHECK(computed.sent_begin == expected.sent_begin);
  CHECK(computed.served == expected.served);
  CHECK(computed.sent_rows == expected.sent_rows);
  CHECK(computed.returned_begin == expected.returned_begin);
  CHECK(computed.returned_row == expected.returned_row);
}

void check_for_all_teams(StepPolicy policy, const StepProblem& problem, std::int64_t rank) {
  const StepLists expected = expected_lists(policy, problem, rank);
  for (const int team_size : team_sizes()) {
    CAPTURE(static_cast<int>(policy), problem.num_experts, problem.num_ranks, rank, team_size);
    check_equal(routed(policy, problem, rank, team_size), expected);
  }
}

}  // namespace

TEST_CASE("the routing step gives the reference problems their reference ranks, replicas and loads") {
  const std::vector<json> references = reference_problems();
  REQUIRE(references.size() == 90);
  for (const json& reference : references) {
    const StepProblem problem = problem_of(reference);
    for (const int team_size : team_sizes()) {
      for (const auto& [policy, name] :
           {std::pair{StepPolicy::metro, "metro"}, {StepPolicy::metro_scarce, "metro-scarce"}}) {
        const json& expected = reference.at("policies").at(name);
        Ids expected_ranks(static_cast<std::size_t>(problem.num_experts), -1);
        for (const auto& [expert, rank] : expected.at("rank_of_expert").items()) {
          expected_ranks.at(std::stoul(expert)) = rank.get<std::int32_t>();
        }

        const StepLists lists = routed(policy, problem, 0, team_size);

        CHECK(lists.expert_to_rank == expected_ranks);
        CHECK(lists.activated == expected.at("activated").get<Ids>());
        CHECK(lists.lambda.front() == expected.at("lambda").get<std::int32_t>());
      }
      const StepLists even = routed(StepPolicy::even, problem, 0, team_size);
      CHECK(even.slots == flattened(reference.at("policies").at("even").at("slot")));
      const StepLists exact = routed(StepPolicy::exact, problem, 0, team_size);
      CHECK(exact.lambda.front() == reference.at("policies").at("exact").at("lambda").get<std::int32_t>());
    }
  }
}

TEST_CASE("the routing step gives the reference problems the lists of the host") {
  for (const json& reference : reference_problems()) {
    const StepProblem problem = problem_of(reference);
    for (const StepPolicy policy : all_policies) {
      check_for_all_teams(policy, problem, problem.num_ranks / 2);
    }
  }
}

TEST_CASE("the routing step agrees with the host for any number of ranks and experts") {
  std::mt19937_64 random(11);
  // Few and many experts, ranks in one mask word, in two, in 16; duplicates on a rank; experts on more than 32 ranks.
  const std::vector<Size> sizes{{1, 1, 1},     {8, 1, 8},      {5, 7, 3},    {16, 4, 5},     {64, 2, 200},
                                {128, 8, 20},  {256, 16, 20},  {100, 65, 3}, {384, 130, 4},  {512, 144, 4},
                                {16, 1024, 1}, {1024, 3, 400}, {9, 300, 2},  {1024, 1024, 2}};
  for (const Size& size : sizes) {
    const std::int64_t num_problems = size.num_experts * size.num_ranks > 20000 ? 2 : 10;
    for (std::int64_t i = 0; i < num_problems; ++i) {
      const std::int64_t top_k = 1 + static_cast<std::int64_t>(random() % 8U) % size.num_experts;
      const StepProblem problem = random_problem(size, top_k, size.num_ranks > 100 ? 2 : 20, random);
      const auto rank = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size.num_ranks));
      for (const StepPolicy policy : all_policies) {
        check_for_all_teams(policy, problem, rank);
      }
    }
  }
}

TEST_CASE("the routing step repairs as the host does where the greedy pass is not optimal") {
  std::mt19937_64 random(12);
  int num_repaired = 0;
  for (const std::int64_t num_ranks : {8, 24, 80, 150}) {
    for (int i = 0; i < 40; ++i) {
      const StepProblem problem = ring_problem(num_ranks, 4, 1 + i % 3, random);
      const StepLists expected = expected_lists(StepPolicy::exact, problem, 0);
      if (expected.expert_to_rank == expected_lists(StepPolicy::metro_scarce, problem, 0).expert_to_rank) {
        continue;
      }
      ++num_repaired;
      for (const int team_size : team_sizes()) {
        CAPTURE(problem.num_ranks, i, team_size);
        check_equal(routed(StepPolicy::exact, problem, 0, team_size), expected);
      }
    }
  }
  CHECK(num_repaired >= 40);
}

TEST_CASE("the routing step serves a batch without rows, one of padding and one with a single expert") {
  std::mt19937_64 random(13);
  StepProblem problem = random_problem({32, 6, 8}, 4, 10, random);
  const bool has_rows = GENERATE(true, false);
  const std::int32_t only_id = GENERATE(-1, 32, 31, 0);
  if (!has_rows) {
    problem.batch.expert_ids.clear();
    problem.batch.row_to_rank.clear();
  }
  std::fill(problem.batch.expert_ids.begin(), problem.batch.expert_ids.end(), only_id);

  for (const StepPolicy policy : all_policies) {
    for (std::int64_t rank = 0; rank < problem.num_ranks; ++rank) {
      check_for_all_teams(policy, problem, rank);
    }
  }
}

TEST_CASE("the work lists of all ranks together hold every assignment once") {
  std::mt19937_64 random(14);
  const StepProblem problem = random_problem({40, 5, 11}, 3, 12, random);
  for (const StepPolicy policy : all_policies) {
    Ids served;
    for (std::int64_t rank = 0; rank < problem.num_ranks; ++rank) {
      const Ids work = routed(policy, problem, rank, team_sizes().back()).work;
      served.insert(served.end(), work.begin(), work.end());
    }
    std::sort(served.begin(), served.end());

    Ids expected;
    for (std::int32_t i = 0; i < std::ssize(problem.batch.expert_ids); ++i) {
      const std::int32_t id = problem.batch.expert_ids[static_cast<std::size_t>(i)];
      if (id >= 0 && id < problem.num_experts) {
        expected.push_back(i);
      }
    }
    CHECK(served == expected);
  }
}

TEST_CASE("a routing step serves layers and batches one after the other") {
  std::mt19937_64 random(15);
  const Size size{48, 70, 2};
  const StepProblem largest = random_problem(size, 4, 9, random);
  for (const int team_size : team_sizes()) {
    RoutingStep step(StepPolicy::exact, largest.sizes(), team_size);
    for (const std::int64_t most_rows : {9, 0, 3, 1}) {
      StepProblem problem = random_problem(size, 4, most_rows, random);
      if (most_rows == 9) {
        problem = largest;
      }
      const DeviceRows rows(problem);

      step.route(problem.tables(7), rows.rows());

      check_equal(lists_of(step, problem, 7), expected_lists(StepPolicy::exact, problem, 7));
    }
  }
}

TEST_CASE("the checksum of a routing step is one on all ranks and team sizes and another for other ids or slots") {
  std::mt19937_64 random(16);
  const StepProblem problem = random_problem({40, 5, 11}, 3, 12, random);
  const auto checksum = [](StepPolicy policy, const StepProblem& of, std::int64_t rank, int team_size) {
    RoutingStep step(policy, of.sizes(), team_size);
    const DeviceRows rows(of);
    step.route(of.tables(rank), rows.rows());
    return checksum_of(step);
  };
  const std::uint64_t expected = checksum(StepPolicy::exact, problem, 0, 1);

  for (const int team_size : team_sizes()) {
    CHECK(checksum(StepPolicy::exact, problem, 4, team_size) == expected);
  }
  CHECK(checksum(StepPolicy::even, problem, 0, 1) != expected);
  StepProblem other = problem;
  auto& ids = other.batch.expert_ids;
  const auto different = std::adjacent_find(ids.begin(), ids.end(), std::not_equal_to<>());
  REQUIRE(different != ids.end());
  std::swap(*different, *(different + 1));
  CHECK(checksum(StepPolicy::exact, other, 0, 1) != expected);
}

TEST_CASE("the scratch of a routing step lies near its threads where it fits 48 KB") {
  const auto sizes = [](std::int64_t num_experts, std::int64_t num_ranks) {
    return RoutingStep::Sizes{num_experts, num_ranks, 2 * num_experts / num_ranks, 4096};
  };
  for (const StepPolicy policy : all_policies) {
    for (const int team_size : team_sizes()) {
      const RoutingStep usual(policy, sizes(256, 16), team_size);
      CHECK(usual.scratch_level() == 0);
      CHECK(usual.scratch_bytes() <= 48 * 1024);
      CHECK(RoutingStep(policy, sizes(512, 128), team_size).scratch_level() == 0);
    }
  }
  CHECK(RoutingStep(StepPolicy::exact, sizes(1024, 1024), 1).scratch_level() == 1);
}

TEST_CASE("a routing step refuses sizes, rows and teams it was not made for") {
  std::mt19937_64 random(17);
  const StepProblem problem = random_problem({8, 2, 6}, 2, 4, random);
  const DeviceRows rows(problem);
  const RoutingStep::Sizes sizes = problem.sizes();
  RoutingStep small(StepPolicy::exact, {sizes.num_experts, sizes.num_ranks, sizes.slots_per_rank, 1});
  RoutingStep other(StepPolicy::exact, {sizes.num_experts + 1, sizes.num_ranks, sizes.slots_per_rank, 100});

  CHECK_THROWS_AS(small.route(problem.tables(0), rows.rows()), metro::Bug);
  CHECK_THROWS_AS(other.route(problem.tables(0), rows.rows()), metro::Bug);
  CHECK_THROWS_AS(RoutingStep(StepPolicy::exact, sizes, 2 * RoutingStep::max_team_size()), metro::Bug);
  CHECK_THROWS_AS(RoutingTables(Ids{0, 0}, 2, 2, 0), metro::Bug);
  CHECK_THROWS_AS(RoutingTables(Ids{0, 2}, 2, 2, 0), metro::Bug);
  CHECK_THROWS_AS(problem.tables(2), metro::Bug);
}
