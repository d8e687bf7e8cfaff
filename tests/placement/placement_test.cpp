#include "placement/placement.hpp"

#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

using metro::ExitCode;
using metro::Placement;
using metro::test::expect_error;

TEST_CASE("replication gives every rank its share of the replicas, rounded up") {
  CHECK(metro::slots_for_replication(128, 8, 1.0) == 16);
  CHECK(metro::slots_for_replication(128, 8, 1.125) == 18);
  CHECK(metro::slots_for_replication(128, 8, 1.5) == 24);
  CHECK(metro::slots_for_replication(128, 8, 1.51) == 25);
  CHECK(metro::slots_for_replication(10, 4, 1.0) == 3);
  CHECK(metro::slots_for_replication(4, 1, 1.0) == 4);
}

TEST_CASE("more ranks than experts still get one slot each") {
  CHECK(metro::slots_for_replication(4, 8, 1.0) == 1);
  CHECK(metro::slots_for_replication(4, 1000, 1.5) == 1);
}

TEST_CASE("a replication that divides evenly costs no slot through binary rounding") {
  REQUIRE(100 * 1.1 > 110.0);  // the case is a real one

  CHECK(metro::slots_for_replication(100, 10, 1.1) == 11);
  CHECK(metro::slots_for_replication(100, 115, 1.15) == 1);
}

TEST_CASE("a replication below one, not finite or beyond all slots is refused by name and value") {
  const auto slots = [](double replication) { return metro::slots_for_replication(128, 8, replication); };

  expect_error(ExitCode::usage, {"experts.replication = 0.99", "1 or more"}, [&] { slots(0.99); });
  expect_error(ExitCode::usage, {"experts.replication = 0:"}, [&] { slots(0.0); });
  expect_error(ExitCode::usage, {"experts.replication = -2:"}, [&] { slots(-2.0); });
  expect_error(ExitCode::usage, {"experts.replication = nan"}, [&] { slots(std::nan("")); });
  expect_error(ExitCode::usage, {"experts.replication = inf"}, [&] { slots(std::numeric_limits<double>::infinity()); });
  expect_error(ExitCode::usage, {"experts.replication = 1e+300", "2147483647"}, [&] { slots(1e300); });
}

TEST_CASE("the trivial placement deals the experts out in order and starts again") {
  const Placement placement = metro::place_trivial(2, 3, 2, 4);

  CHECK(placement.num_slots() == 8);
  CHECK(placement.slot_to_expert == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1});
  CHECK(placement.layer(1).data() == placement.slot_to_expert.data() + 8);
  metro::check_placement(placement, 2, 3, 2, "trivial");
}

TEST_CASE("too few slots for the experts name the smallest number per rank that works") {
  const std::vector<std::int64_t> no_loads;

  expect_error(ExitCode::usage, {"experts.slots_per_rank = 2", "12 experts", "4 ranks", "works is 3"},
               [&] { metro::place_trivial(1, 12, 4, 2); });
  expect_error(ExitCode::usage, {"experts.slots_per_rank = 3", "13 experts", "works is 4"},
               [&] { metro::place_eplb(no_loads, 1, 13, 1, 1, 4, 3); });
  expect_error(ExitCode::usage, {"experts.slots_per_rank = 0", "works is 1"},
               [&] { metro::place_trivial(1, 4, 8, 0); });
  expect_error(ExitCode::usage, {"experts.slots_per_rank = -5", "works is 3"},
               [&] { metro::place_eplb(no_loads, 1, 12, 1, 1, 4, -5); });
}

TEST_CASE("the smallest number of slots that the error names does work") {
  for (const std::int64_t num_ranks : {1, 3, 4, 8, 20}) {
    const std::int64_t smallest = (13 + num_ranks - 1) / num_ranks;

    metro::check_placement(metro::place_trivial(1, 13, num_ranks, smallest), 1, 13, num_ranks, "smallest");
    CHECK_THROWS_AS(metro::place_trivial(1, 13, num_ranks, smallest - 1), metro::Error);
  }
}

TEST_CASE("more slots than 32-bit ids can name are refused before anything is allocated") {
  expect_error(ExitCode::usage, {"experts.slots_per_rank = 536870912", "4 ranks", "allowed is 536870911"},
               [] { metro::place_trivial(1, 12, 4, 536870912); });
}

TEST_CASE("a placement for another model or job is refused with both numbers") {
  const Placement placement = metro::place_trivial(2, 6, 3, 2);

  metro::check_placement(placement, 2, 6, 3, "p.json");
  expect_error(ExitCode::usage, {"p.json", "2 MoE layers", "model has 5"},
               [&] { metro::check_placement(placement, 5, 6, 3, "p.json"); });
  expect_error(ExitCode::usage, {"p.json", "6 experts", "model has 8"},
               [&] { metro::check_placement(placement, 2, 8, 3, "p.json"); });
  expect_error(ExitCode::usage, {"p.json", "3 ranks", "job has 4"},
               [&] { metro::check_placement(placement, 2, 6, 4, "p.json"); });
}

TEST_CASE("an expert without a slot in some layer is named with the layer") {
  Placement placement = metro::place_trivial(2, 4, 2, 2);
  placement.slot_to_expert[4 + 3] = Placement::empty_slot;

  expect_error(ExitCode::usage, {"p.json", "expert 3", "MoE layer 1"},
               [&] { metro::check_placement(placement, 2, 4, 2, "p.json"); });
}
