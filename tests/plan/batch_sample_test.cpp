#include "plan/batch_sample.hpp"

#include "plan/tiny_trace.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::ActivationSample;
using metro::ExitCode;
using metro::test::expect_error;
using metro::test::tiny_trace;

namespace {

ActivationSample sample_with(std::vector<std::int64_t> batch_sizes, std::int64_t num_steps, std::uint64_t seed) {
  const metro::RoutingTrace trace = tiny_trace(10, 30);
  const auto requests = metro::requests_of(trace, metro::TraceRows::decode, metro::TraceRequests::all);
  return metro::sample_of(trace, requests, {std::move(batch_sizes), num_steps, seed});
}

}  // namespace

TEST_CASE("a step of one sequence has the experts of one token in every layer") {
  const ActivationSample sample = sample_with({1}, 50, 1);

  CHECK(sample.num_steps() == 50);
  CHECK(sample.num_layers() == 2);
  CHECK(sample.num_experts() == 8);
  for (std::int64_t step = 0; step < 50; ++step) {
    const auto first_layer = sample.active_experts(step, 0);
    REQUIRE(first_layer.size() == 2);
    const std::int32_t first =
        (first_layer[0] + 1) % 8 == first_layer[1] && first_layer != std::vector<std::int32_t>{0, 7} ? first_layer[0]
                                                                                                     : first_layer[1];
    CHECK(sample.is_active(step, 1, 2 * first % 8));
    CHECK(sample.is_active(step, 1, (2 * first + 1) % 8));
    CHECK(sample.active_experts(step, 1).size() == 2);
  }
}

TEST_CASE("batch sizes share the steps in inverse proportion to what they activate, mixed") {
  const ActivationSample sample = sample_with({1, 10}, 200, 1);

  // In layer 0 a batch of one has 2 active experts, a batch of 10 nearly always more; the mean is taken over layers.
  std::int64_t small_in_first_half = 0;
  std::int64_t small = 0;
  for (std::int64_t step = 0; step < 200; ++step) {
    if (sample.active_experts(step, 0).size() == 2) {
      ++small;
      small_in_first_half += step < 100 ? 1 : 0;
    }
  }
  CHECK(small > 130);
  CHECK(small < 170);
  CHECK(small_in_first_half > 65);
  CHECK(small_in_first_half < 85);
}

TEST_CASE("equal seeds draw equal samples, others do not") {
  const auto steps_with = [](std::uint64_t seed) { return sample_with({2, 4}, 60, seed).steps_of_experts(0); };

  CHECK(steps_with(3) == steps_with(3));
  CHECK(steps_with(3) != steps_with(4));
}

TEST_CASE("a batch larger than the number of requests is refused with both numbers") {
  expect_error(ExitCode::usage, {"11", "10"}, [] { sample_with({4, 11}, 10, 0); });
}
