#include "report/run_statistics.hpp"

#include "report/records.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using metro::histogram_bars;

TEST_CASE("histogram bars have equal widths, begin at the least value and count every sample once") {
  const std::vector<std::int64_t> value_to_count{0, 0, 3, 1, 0, 5, 2, 4, 0, 0};

  const auto each = histogram_bars(value_to_count, 6);
  const auto few = histogram_bars(value_to_count, 4);

  REQUIRE(each.size() == 6);
  CHECK(each[0].first == 2);
  CHECK(each[0].last == 2);
  CHECK(each[3].count == 5);
  REQUIRE(few.size() == 3);
  CHECK(few[0].last == 3);
  CHECK(few[0].count == 4);
  CHECK(few[1].count == 5);
  CHECK(few[2].first == 6);
  CHECK(few[2].last == 7);
  CHECK(few[2].count == 6);
}

TEST_CASE("histogram bars never exceed their number, for any range of values") {
  for (std::int64_t range = 1; range <= 40; ++range) {
    for (std::int64_t most = 1; most <= 8; ++most) {
      const std::vector<std::int64_t> value_to_count(static_cast<std::size_t>(range), 1);
      const auto bars = histogram_bars(value_to_count, most);

      std::int64_t total = 0;
      for (const auto& bar : bars) {
        total += bar.count;
      }
      CHECK(static_cast<std::int64_t>(bars.size()) <= most);
      CHECK(total == range);
      CHECK(bars.back().last == range - 1);
    }
  }
  CHECK(histogram_bars({}, 5).empty());
  CHECK(histogram_bars(std::vector<std::int64_t>(4, 0), 5).empty());
}

TEST_CASE("statistics of steps and requests are their sums") {
  metro::RunStatistics run;

  run.add(metro::test::prefill_step());
  run.add(metro::test::decode_step(1.0, {{6, 3, 7, 2}, {4, 2, 4, 2}}));
  run.add(metro::test::decode_step(2.0, {{8, 5, 9, 5}, {2, 1, 2, 1}}));
  run.add(metro::test::request(0, 5, 3, metro::FinishReason::stop));
  run.add(metro::test::request(1, 7, 1, metro::FinishReason::length));

  CHECK(run.prefill_steps == 1);
  CHECK(run.decode_steps == 2);
  CHECK(run.prefill_s == Approx(0.25));
  CHECK(run.decode_s == Approx(1.0));
  CHECK(run.end_s == Approx(2.5));
  CHECK(run.bytes_sent == 3000);
  CHECK(run.activation.num_samples == 4);
  CHECK(run.activation.num_optimal == 3);
  CHECK(run.activation.mean(run.activation.lambda_sum) == Approx(11.0 / 4));
  CHECK(run.activation.mean(run.activation.optimum_sum) == Approx(10.0 / 4));
  CHECK(run.activation.activated_sum == 22);
  CHECK(run.activation.active_sum == 20);
  CHECK(run.activation.lambda_to_count == std::vector<std::int64_t>{0, 1, 1, 1, 0, 1});
  CHECK(run.num_stop == 1);
  CHECK(run.num_length == 1);
  CHECK(run.prompt_tokens == 12);
  CHECK(run.generated_tokens == 4);
  CHECK(run.first_token_s.num_values() == 2);
  CHECK(run.first_token_s.quantile(0.5) == Approx(0.25));
  REQUIRE(run.per_token_s.num_values() == 1);  // a request of one token has no time between tokens
  CHECK(run.per_token_s.quantile(0.5) == Approx(0.75));
  CHECK(run.queue_s.num_values() == 0);
}

TEST_CASE("times of a request that arrived count from its arrival") {
  metro::RunStatistics run;
  metro::RequestMetrics request = metro::test::request(0, 5, 3, metro::FinishReason::stop);
  request.arrival_s = 0.125;

  run.add(request);

  REQUIRE(run.queue_s.num_values() == 1);
  CHECK(run.queue_s.quantile(0.5) == Approx(0.375));
  CHECK(run.first_token_s.quantile(0.5) == Approx(0.625));
  CHECK(run.per_token_s.quantile(0.5) == Approx(0.75));
}
