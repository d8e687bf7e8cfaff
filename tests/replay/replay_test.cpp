#include "replay/replay.hpp"

#include "placement/placement.hpp"
#include "replay/synthetic_trace.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

using metro::ExitCode;
using metro::replay;
using metro::ReplayedBatch;
using metro::ReplayResult;
using metro::ReplaySettings;
using metro::RoutingPolicy;
using metro::RoutingTrace;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using metro::test::synthetic_trace;

namespace {

ReplaySettings small_settings() {
  ReplaySettings settings;
  settings.placements = {"eplb"};
  settings.policies = {metro::routing_policies().begin(), metro::routing_policies().end()};
  settings.batch_sizes = {8};
  settings.rank_counts = {4};
  settings.replications = {1.5};
  settings.layers = {0, 1};
  settings.num_draws = 20;
  return settings;
}

const ReplayResult& of_policy(const std::vector<ReplayResult>& results, RoutingPolicy policy) {
  return *std::find_if(results.begin(), results.end(),
                       [&](const ReplayResult& result) { return result.replayed.policy == policy; });
}

std::vector<ReplayResult> quiet(const RoutingTrace& trace, const ReplaySettings& settings) {
  return replay(trace, settings, {});
}

}  // namespace

TEST_CASE("a sweep has one result for every combination, in a fixed order") {
  const RoutingTrace trace = synthetic_trace(16, 2, 2, 2000, 10);
  ReplaySettings settings = small_settings();
  settings.placements = {"trivial", "eplb"};
  settings.policies = {RoutingPolicy::metro, RoutingPolicy::even};
  settings.batch_sizes = {4, 8};
  settings.rank_counts = {2, 4};
  settings.replications = {1.0, 1.5};

  const std::vector<ReplayResult> results = quiet(trace, settings);

  REQUIRE(results.size() == 2 * 2 * 2 * 2 * 2);
  CHECK(results[0].replayed.placement == "trivial");
  CHECK(results[1].replayed.policy == RoutingPolicy::even);
  CHECK(results[2].replayed.batch_size == 8);
  CHECK(results[4].replayed.replication == 1.5);
  CHECK(results[8].replayed.num_ranks == 4);
  CHECK(results[12].replayed.slots_per_rank == 6);
  CHECK(results[16].replayed.placement == "eplb");
  for (const ReplayResult& result : results) {
    CHECK(result.layers.size() == 2);
    CHECK(result.overall.num_batches == 40);
    CHECK(result.overall.lambda == Approx((result.layers[0].lambda + result.layers[1].lambda) / 2));
  }
}

TEST_CASE("replications that round to the same slots per rank are replayed once") {
  ReplaySettings settings = small_settings();
  settings.policies = {RoutingPolicy::exact};
  settings.replications = {1.0, 1.125, 1.25, 1.5};

  const std::vector<ReplayResult> results = quiet(synthetic_trace(16, 2, 2, 2000, 10), settings);

  REQUIRE(results.size() == 3);  // 16 experts on 4 ranks: 4, 5, 5 and 6 slots
  CHECK(results[1].replayed.replication == 1.25);
  CHECK(results[2].replayed.slots_per_rank == 6);
}

TEST_CASE("exact has no gap, no policy is below the optimum, and the optimum is not below its bound") {
  const RoutingTrace trace = synthetic_trace(32, 4, 2, 4000, 8);

  const std::vector<ReplayResult> results = quiet(trace, small_settings());

  CHECK(of_policy(results, RoutingPolicy::exact).overall.gap() == 0.0);
  for (const ReplayResult& result : results) {
    CHECK(result.overall.gap() >= 0.0);
    CHECK(result.overall.optimum >= result.overall.bound);
    CHECK(result.overall.lambda_p95 <= result.overall.lambda_max);
    CHECK(result.overall.optimum == results.front().overall.optimum);
  }
}

TEST_CASE("without replicas all policies activate the same") {
  ReplaySettings settings = small_settings();
  settings.replications = {1.0};

  for (const ReplayResult& result : quiet(synthetic_trace(32, 4, 2, 2000, 8), settings)) {
    CHECK(result.overall.gap() == 0.0);
    CHECK(result.overall.activated == result.overall.active);
    CHECK(result.overall.differing_share == 0.0);
    CHECK(result.overall.lock_differing_share == 0.0);
  }
}

TEST_CASE("a batch in which every expert is active activates what the placement says") {
  // 16 experts, all equal, top 4, batches of 64: an expert is idle with probability 0.75^64, once in 10^8.
  const RoutingTrace trace = synthetic_trace(16, 4, 2, 12'800, 0);
  ReplaySettings settings = small_settings();
  settings.batch_sizes = {64};
  settings.replications = {1.5};

  const std::vector<ReplayResult> results = quiet(trace, settings);

  // Token-balanced: every slot of every rank is in use, 6 per rank. The least is 16 / 4.
  CHECK(of_policy(results, RoutingPolicy::even).overall.lambda == 6.0);
  CHECK(of_policy(results, RoutingPolicy::exact).overall.lambda == 4.0);
}

TEST_CASE("policies that decide from the source rank let ranks differ, all others do not") {
  const std::vector<ReplayResult> results = quiet(synthetic_trace(32, 4, 2, 4000, 8), small_settings());

  const std::set<RoutingPolicy> by_source{RoutingPolicy::static_choice, RoutingPolicy::local};
  for (const ReplayResult& result : results) {
    CAPTURE(metro::name_of(result.replayed.policy));
    CHECK((result.overall.differing_share > 0.0) == by_source.contains(result.replayed.policy));
    CHECK((result.overall.lock_differing_share > 0.0) == (result.replayed.policy == RoutingPolicy::metro));
  }
}

TEST_CASE("batches are drawn from the judged requests, and routed the same for every policy") {
  const RoutingTrace trace = synthetic_trace(16, 2, 2, 2000, 10);
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>> rows_of;  // by layer and draw
  std::int64_t num_observed = 0;

  replay(trace, small_settings(), [&](const ReplayedBatch& routed) {
    ++num_observed;
    const auto [found, is_new] = rows_of.emplace(std::pair(routed.layer, routed.draw), routed.batch.rows);
    CHECK(found->second == routed.batch.rows);
    for (std::size_t i = 0; i < routed.batch.rows.size(); ++i) {
      CHECK(trace.request[static_cast<std::size_t>(routed.batch.rows[i])] % 2 == 1);
      const auto experts = trace.experts(routed.batch.rows[i], routed.layer);
      CHECK(std::equal(experts.begin(), experts.end(), routed.topk_idx.begin() + static_cast<std::ptrdiff_t>(2 * i)));
    }
    for (std::size_t i = 0; i < routed.slots.size(); ++i) {
      CHECK(routed.slot_to_expert[static_cast<std::size_t>(routed.slots[i])] == routed.topk_idx[i]);
    }
  });

  CHECK(num_observed == 10 * 2 * 20);
  CHECK(rows_of.size() == 2 * 20);
}

TEST_CASE("eplb is made from the requests to plan on only") {
  RoutingTrace trace = synthetic_trace(16, 2, 1, 2000, 0);
  // Even requests choose experts 0 and 1 only.
  for (std::size_t token = 0; token < trace.request.size(); ++token) {
    if (trace.request[token] % 2 == 0) {
      trace.topk_idx[2 * token] = 0;
      trace.topk_idx[2 * token + 1] = 1;
    }
  }
  ReplaySettings settings = small_settings();
  settings.layers = {0};
  const auto replicas_of_first = [&](metro::TraceRequests plan_on) {
    settings.plan_on = plan_on;
    std::int64_t count = 0;
    replay(trace, settings, [&](const ReplayedBatch& routed) {
      count = std::count(routed.slot_to_expert.begin(), routed.slot_to_expert.end(), 0);
    });
    return count;
  };

  CHECK(replicas_of_first(metro::TraceRequests::even) == 5);  // experts 0 and 1 share the 8 spare slots
  CHECK(replicas_of_first(metro::TraceRequests::odd) <= 3);
}

TEST_CASE("a placement file is replayed at its own number of ranks and replication") {
  const ScratchFolder scratch;
  const RoutingTrace trace = synthetic_trace(16, 2, 2, 2000, 10);
  metro::write_placement(metro::place_trivial(2, 16, 4, 5), scratch.file("p.json"));
  ReplaySettings settings = small_settings();
  settings.placements = {scratch.file("p.json")};
  settings.rank_counts = {2, 4};
  settings.replications = {1.0, 1.5};

  const std::vector<ReplayResult> results = quiet(trace, settings);

  CHECK(results.size() == 10);
  CHECK(results.front().replayed.num_ranks == 4);
  CHECK(results.front().replayed.slots_per_rank == 5);
  CHECK(results.front().replayed.replication == 1.25);
}

TEST_CASE("a sweep that does not fit the trace is refused") {
  const ScratchFolder scratch;
  const RoutingTrace trace = synthetic_trace(16, 2, 2, 800, 10);  // 20 requests
  metro::write_placement(metro::place_trivial(2, 16, 4, 5), scratch.file("p.json"));
  metro::write_placement(metro::place_trivial(3, 16, 4, 5), scratch.file("layers.json"));
  const auto refused = [&](std::initializer_list<const char*> texts, auto change) {
    ReplaySettings settings = small_settings();
    change(settings);
    expect_error(ExitCode::usage, texts, [&] { quiet(trace, settings); });
  };

  refused({"a batch of 11", "offers 10"}, [](ReplaySettings& s) { s.batch_sizes = {11}; });
  refused({"no prefill rows", "odd requests"}, [](ReplaySettings& s) {
    s.rows = metro::TraceRows::prefill;
    s.plan_on = metro::TraceRequests::odd;
  });
  refused({"replication", "0.5"}, [](ReplaySettings& s) { s.replications = {0.5}; });
  refused({"eplbb"}, [](ReplaySettings& s) { s.placements = {"eplbb"}; });
  refused({"p.json", "4 ranks", "--ranks names 2, 8"}, [&](ReplaySettings& s) {
    s.placements = {scratch.file("p.json")};
    s.rank_counts = {2, 8};
  });
  refused({"layers.json", "3", "2"}, [&](ReplaySettings& s) { s.placements = {scratch.file("layers.json")}; });
}

TEST_CASE("metro stays close to the optimum on large batches") {
  // Mean over 1000 batches of 32 rows on 8 ranks: the greedy order costs some, but less than a quarter.
  ReplaySettings settings = small_settings();
  settings.policies = {RoutingPolicy::metro, RoutingPolicy::metro_scarce};
  settings.batch_sizes = {32};
  settings.rank_counts = {8};
  settings.num_draws = 500;

  for (const ReplayResult& result : quiet(synthetic_trace(128, 8, 2, 4000, 2), settings)) {
    CHECK(result.overall.num_batches == 1000);
    CHECK(result.overall.gap() <= 0.25);
  }
}
