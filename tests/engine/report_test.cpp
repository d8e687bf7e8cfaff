#include "placement/placement.hpp"
#include "report/run_report.hpp"
#include "report/run_statistics.hpp"

#include <catch2/catch.hpp>

#include <vector>

TEST_CASE("sizes are shown in the largest unit that leaves at least one") {
  CHECK(metro::human_bytes(0) == "0 B");
  CHECK(metro::human_bytes(1023) == "1023 B");
  CHECK(metro::human_bytes(1536) == "1.5 KiB");
  CHECK(metro::human_bytes(std::int64_t{3} << 40) == "3.0 TiB");
}

TEST_CASE("activated experts are averaged over layers and steps beside the optimum") {
  // 4 experts on 2 ranks: rank 0 holds 0 1 2, rank 1 holds 2 3 0.
  const metro::Placement placement{1, 4, 2, 3, {0, 1, 2, 2, 3, 0}};
  metro::ActivationStatistics statistics(placement);

  // Experts 0, 1, 2 active: the optimum is 2 (1 on rank 0, the others may move). The routing under test used 3 and 1.
  statistics.routed(0, std::vector<std::int32_t>{1, 5, 2, 0}, std::vector<std::int32_t>{3, 1});
  // Expert 3 only.
  statistics.routed(0, std::vector<std::int32_t>{0, 0, 0, 9}, std::vector<std::int32_t>{0, 1});

  CHECK(statistics.num_samples() == 2);
  CHECK(statistics.mean_lambda() == 2.0);
  CHECK(statistics.mean_optimum() == 1.5);
  CHECK(statistics.max_lambda() == 3);
  CHECK(statistics.mean_per_rank() == 1.25);
  CHECK(statistics.mean_active() == 2.0);
}
