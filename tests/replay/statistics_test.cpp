#include "replay/routing_statistics.hpp"

#include <catch2/catch.hpp>

using metro::RoutedBatch;
using metro::RoutingStatistics;
using metro::RoutingStatisticsSum;

namespace {

// A batch whose busiest of two ranks has `lambda` replicas and the other one replica; optimum 1, 10 assignments.
RoutingStatisticsSum& add_lambda(RoutingStatisticsSum& sum, std::int32_t lambda) {
  const std::int32_t activated[] = {1, lambda};
  const std::int64_t rows[] = {4, 6};
  RoutedBatch batch;
  batch.num_active = lambda + 1;
  batch.activated = activated;
  batch.rows = rows;
  batch.optimum = 1;
  batch.num_assignments = 10;
  batch.num_differing = 1;
  batch.num_lock_differing = 1;
  batch.seconds = 2e-6;
  sum.add(batch);
  return sum;
}

}  // namespace

TEST_CASE("statistics of a few batches are what one counts by hand") {
  RoutingStatisticsSum sum;
  add_lambda(sum, 2);
  add_lambda(sum, 4);

  const RoutingStatistics found = sum.statistics();

  CHECK(found.num_batches == 2);
  CHECK(found.active == 4.0);
  CHECK(found.lambda == 3.0);
  CHECK(found.lambda_max == 4);
  CHECK(found.activated == 4.0);
  CHECK(found.optimum == 1.0);
  CHECK(found.gap() == 2.0);
  CHECK(found.bound == 2.5);  // ceil(3 / 2) and ceil(5 / 2)
  CHECK(found.above_bound() == Approx(0.2));
  CHECK(found.rows_max_over_mean == Approx(1.2));
  CHECK(found.differing_share == Approx(0.1));
  CHECK(found.lock_differing_share == Approx(2.0 / 8.0));
  CHECK(found.microseconds == Approx(2.0));
}

TEST_CASE("the 95th percentile is the smallest lambda that 95 of 100 batches do not exceed") {
  RoutingStatisticsSum sum;
  for (std::int32_t lambda = 1; lambda <= 100; ++lambda) {
    add_lambda(sum, lambda);
  }
  CHECK(sum.statistics().lambda_p95 == 95);

  RoutingStatisticsSum few;
  for (const std::int32_t lambda : {7, 3, 3}) {
    add_lambda(few, lambda);
  }
  CHECK(few.statistics().lambda_p95 == 7);
}

TEST_CASE("sums of parts give the statistics of all") {
  RoutingStatisticsSum all, first, second;
  for (std::int32_t lambda = 1; lambda <= 30; ++lambda) {
    add_lambda(all, lambda);
    add_lambda(lambda % 3 == 0 ? first : second, lambda);
  }

  first.add(second);

  CHECK(first.statistics().num_batches == 30);
  CHECK(first.statistics().lambda == all.statistics().lambda);
  CHECK(first.statistics().lambda_p95 == all.statistics().lambda_p95);
  CHECK(first.statistics().rows_max_over_mean == Approx(all.statistics().rows_max_over_mean));
}

TEST_CASE("the balance of rows over ranks is the reciprocal of vLLM's balancedness") {
  // vLLM's own example: two layers of four ranks, all 100 rows on the first: 0.25.
  RoutingStatisticsSum sum;
  const std::int32_t activated[] = {1, 0, 0, 0};
  const std::int64_t rows[] = {100, 0, 0, 0};
  RoutedBatch batch;
  batch.num_active = 1;
  batch.activated = activated;
  batch.rows = rows;
  batch.optimum = 1;
  batch.num_assignments = 100;
  sum.add(batch);
  sum.add(batch);

  CHECK(1.0 / sum.statistics().rows_max_over_mean == Approx(0.25));
}
