#include "plan/placement_report.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::Contains;
using metro::ActivationSample;
using metro::Placement;
using metro::ReportedPlacement;

TEST_CASE("relative loads divide an expert's tokens over its replicas") {
  // Expert 0 (12 tokens) has three slots, two of them on rank 0.
  const Placement placement{2, 3, 2, 3, {0, 0, 1, 0, 2, -1, 0, 1, -1, 2, -1, -1}};

  const auto loads = metro::relative_rank_loads(placement, std::vector<std::int64_t>{12, 2, 2, 0, 0, 0});

  // Layer 0: 8 + 2 and 4 + 2 tokens, mean 8. Layer 1 has none.
  REQUIRE(loads.size() == 4);
  CHECK(loads[0] == Approx(1.25));
  CHECK(loads[1] == Approx(0.75));
  CHECK(loads[2] == Approx(1.0));
  CHECK(loads[3] == Approx(1.0));
}

TEST_CASE("the report shows lambda beside EPLB's and the bound, loads, replicas, and what one more slot buys") {
  // Experts 0 and 1 are always active together; the worse placement has both on rank 0 only.
  ActivationSample sample(10, 1, 4);
  for (std::int64_t step = 0; step < 10; ++step) {
    sample.set_active(step, 0, 0);
    sample.set_active(step, 0, 1);
  }
  const Placement good{1, 4, 2, 2, {0, 2, 1, 3}};
  const Placement bad{1, 4, 2, 2, {0, 1, 2, 3}};
  const Placement more{1, 4, 2, 3, {0, 2, 1, 1, 3, 0}};
  ReportedPlacement reported{"test", &good, &bad, &more, &sample, {30, 10, 0, 0}, 2, {1000, 2000}};

  const std::string text = metro::placement_report(reported);

  CHECK_THAT(text, Contains("test: 1 MoE layer with 4 experts, 2 ranks on 2 nodes, 2 slots per rank, 1.000 replicas"));
  CHECK_THAT(text, Contains("this placement                 1.0000"));
  CHECK_THAT(text, Contains("EPLB with as many slots        2.0000"));
  CHECK_THAT(text, Contains("bound: active / ranks          1.0000"));
  CHECK_THAT(text, Contains("of the way from EPLB there     100.0%"));
  CHECK_THAT(text, Contains("rank 0              2     1.500     1.500            1000"));
  CHECK_THAT(text, Contains("node 1              2     0.500     0.500            2000"));
  CHECK_THAT(text, Contains("       1        4\n"));
  CHECK_THAT(text, Contains("most replicas: expert 0 of layer 0 (1)"));
}

TEST_CASE("without a sample the report has loads only, and slots that serve nothing are counted") {
  const Placement placement{1, 2, 2, 2, {0, 0, 1, -1}};
  const Placement eplb{1, 2, 2, 2, {0, 1, 0, 1}};

  const std::string text = metro::placement_report({"file.json", &placement, &eplb, nullptr, nullptr, {1, 3}, 1, {}});

  CHECK_THAT(text, !Contains("lambda"));
  CHECK_THAT(text, !Contains("node 0"));
  CHECK_THAT(text, Contains("this placement                 1.5000"));
  CHECK_THAT(text, Contains("1 slot is a second slot of an expert on the same rank"));
}
