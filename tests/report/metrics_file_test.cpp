// metrics.h5 comes back as it was written, whatever the size of the chunks, and damage is found.
#include "report/metrics_reader.hpp"
#include "report/metrics_writer.hpp"

#include "hdf5/hdf5_table_writer.hpp"
#include "report/records.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>

using metro::ExitCode;
using metro::MetricsReader;
using metro::MetricsWriter;
using metro::RequestMetrics;
using metro::StepMetrics;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

std::vector<StepMetrics> made_up_steps(std::int32_t num_steps) {
  std::vector<StepMetrics> steps;
  for (std::int32_t i = 0; i < num_steps; ++i) {
    if (i % 3 == 0) {
      steps.push_back(metro::test::prefill_step());
    } else {
      steps.push_back(metro::test::decode_step(i, {{4, 3, 5, 2}, {i % 5, 1, 2, 1}}));
    }
    steps.back().rows = i;
  }
  return steps;
}

void check_same(const StepMetrics& a, const StepMetrics& b) {
  CHECK(a.kind == b.kind);
  CHECK(a.rows == b.rows);
  CHECK(a.sequences == b.sequences);
  CHECK(a.begin_s == b.begin_s);
  CHECK(a.seconds == b.seconds);
  CHECK(a.phases.max == b.phases.max);
  CHECK(a.phases.mean == b.phases.mean);
  CHECK(a.bytes_sent == b.bytes_sent);
  REQUIRE(a.layers.size() == b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    CHECK(a.layers[i].active == b.layers[i].active);
    CHECK(a.layers[i].lambda == b.layers[i].lambda);
    CHECK(a.layers[i].activated == b.layers[i].activated);
    CHECK(a.layers[i].optimum == b.layers[i].optimum);
  }
}

std::vector<StepMetrics> steps_in(const MetricsReader& reader) {
  std::vector<StepMetrics> steps;
  reader.for_each_step([&](const StepMetrics& step) { steps.push_back(step); });
  return steps;
}

}  // namespace

TEST_CASE("steps and requests come back in order, for any size of the chunks") {
  const std::int64_t chunk_rows = GENERATE(1, 2, 7, 1000);
  CAPTURE(chunk_rows);
  const ScratchFolder scratch;
  const std::string path = scratch.file("metrics.h5");
  const std::vector<StepMetrics> steps = made_up_steps(20);
  {
    MetricsWriter writer(path, metro::test::identity(), chunk_rows);
    for (std::int64_t i = 0; i < 20; ++i) {
      writer.add(steps[static_cast<std::size_t>(i)]);
      if (i % 4 == 3) {
        RequestMetrics request = metro::test::request(i, 5, 3, metro::FinishReason::length);
        request.arrival_s = i == 7 ? std::optional(0.25) : std::nullopt;
        writer.add(request);
      }
    }
    writer.finish(metro::test::totals());
  }

  const MetricsReader reader(path);
  const std::vector<StepMetrics> found = steps_in(reader);
  std::vector<RequestMetrics> requests;
  reader.for_each_request([&](const RequestMetrics& request) { requests.push_back(request); });

  REQUIRE(found.size() == steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    check_same(found[i], steps[i]);
  }
  REQUIRE(requests.size() == 5);
  CHECK(requests[1].id == 7);
  CHECK(requests[1].custom_id == "request-7");
  CHECK(requests[1].prompt_tokens == 5);
  CHECK(requests[1].generated_tokens == 3);
  CHECK(requests[1].finish_reason == metro::FinishReason::length);
  CHECK(requests[1].first_step_s == 0.5);
  CHECK(requests[1].first_token_s == 0.75);
  CHECK(requests[1].last_token_s == 2.25);
  CHECK(requests[1].arrival_s == 0.25);
  CHECK(!requests[2].arrival_s);
}

TEST_CASE("changes of placement come back, also from a file that was never closed") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("metrics.h5");
  const std::vector<std::int32_t> placement{3, 2, 1, 0, 1, -1, 0, 1, 2, 3, 3, 3};
  MetricsWriter writer(path, metro::test::identity());
  writer.add(metro::test::rebalance(10, metro::test::identity().placement.slot_to_expert));
  writer.add(metro::test::rebalance(20, placement));

  std::vector<metro::RebalanceMetrics> found;
  MetricsReader(path).for_each_rebalance([&](const metro::RebalanceMetrics& one) { found.push_back(one); });

  REQUIRE(found.size() == 2);
  CHECK(found[0].slot_to_expert == metro::test::identity().placement.slot_to_expert);
  CHECK(found[1].step == 20);
  CHECK(found[1].begin_s == 1.25);
  CHECK(found[1].seconds == 0.125);
  CHECK(found[1].slots_moved == 5);
  CHECK(found[1].experts_fetched == 4);
  CHECK(found[1].bytes_sent == 2048);
  CHECK(found[1].bytes_read == 512);
  CHECK(found[1].balance_before == 0.25);
  CHECK(found[1].balance_after == 0.75);
  CHECK(found[1].slot_to_expert == placement);
}

TEST_CASE("a later placement with an expert that does not exist is refused") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("metrics.h5");
  {
    MetricsWriter writer(path, metro::test::identity());
    writer.add(metro::test::rebalance(10, std::vector<std::int32_t>(12, 4)));
    writer.finish(metro::test::totals());
  }

  const MetricsReader reader(path);

  expect_error(ExitCode::input, {path.c_str(), "/rebalance/slot_to_expert holds 4", "-1 to 3"},
               [&] { reader.for_each_rebalance([](const metro::RebalanceMetrics&) {}); });
}

TEST_CASE("the file says what ran where, and what came of it") {
  const ScratchFolder scratch;
  MetricsWriter(scratch.file("metrics.h5"), metro::test::identity()).finish(metro::test::totals());
  const metro::RunIdentity given = metro::test::identity();

  const MetricsReader reader(scratch.file("metrics.h5"));
  const metro::RunIdentity& found = reader.identity();
  const auto totals = reader.totals();

  CHECK(found.build == given.build);
  CHECK(found.started == given.started);
  CHECK(found.deck == given.deck);
  CHECK(found.checkpoint_digest == given.checkpoint_digest);
  CHECK(found.decode_policy == given.decode_policy);
  CHECK(found.decode_exchange == given.decode_exchange);
  CHECK(found.placement_name == given.placement_name);
  CHECK(found.spec.layers == given.spec.layers);
  CHECK(found.spec.attention.num_kv_heads == given.spec.attention.num_kv_heads);
  CHECK(found.spec.moe.intermediate_size == given.spec.moe.intermediate_size);
  CHECK(found.placement.slots_per_rank == given.placement.slots_per_rank);
  CHECK(found.placement.slot_to_expert == given.placement.slot_to_expert);
  CHECK(found.rank_to_host == given.rank_to_host);
  CHECK(found.rank_to_node == given.rank_to_node);
  CHECK(found.shard == given.shard);
  CHECK(found.threads_per_rank == given.threads_per_rank);
  REQUIRE(found.rank_to_binding.size() == 2);
  CHECK(found.rank_to_binding[1].cpus == "0-3");
  CHECK(found.rank_to_binding[1].cores == "0,2");
  CHECK(found.rank_to_binding[1].device == "1 NVIDIA H200 0000:18:00.0, 139.8 GiB");
  REQUIRE(totals.has_value());
  CHECK(totals->run_s == 4.0);
  CHECK(totals->num_lines == 40);
  CHECK(totals->num_own_lines == 10);
  CHECK(totals->num_rejected == 2);
  CHECK(totals->num_repeated_ids == 3);
  CHECK(totals->bytes_sent_sum == 3072);
  CHECK(totals->prompt_of_rank == metro::test::totals().prompt_of_rank);
}

TEST_CASE("a run that ended early leaves the chunks that were written") {
  const ScratchFolder scratch;
  MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity(), 4);
  for (const StepMetrics& step : made_up_steps(6)) {
    writer.add(step);
  }
  std::ifstream now(scratch.file("metrics.h5"), std::ios::binary);
  std::ofstream(scratch.file("killed.h5"), std::ios::binary) << now.rdbuf();

  const MetricsReader reader(scratch.file("killed.h5"));

  CHECK(steps_in(reader).size() == 4);
  CHECK_FALSE(reader.totals().has_value());
}

TEST_CASE("a file of another format or version is refused by name") {
  const ScratchFolder scratch;
  {
    metro::Hdf5TableWriter file(scratch.file("other.h5"), 4);
    file.attribute("format", std::string("metro-checkpoint"));
    file.close();
  }
  {
    metro::Hdf5TableWriter file(scratch.file("newer.h5"), 4);
    file.attribute("format", std::string("metro-metrics"));
    file.attribute("version", std::int64_t{2});
    file.close();
  }

  expect_error(ExitCode::input, {"other.h5", "format", "metro-metrics"},
               [&] { const MetricsReader reader(scratch.file("other.h5")); });
  expect_error(ExitCode::input, {"newer.h5", "version 2", "reads 1"},
               [&] { const MetricsReader reader(scratch.file("newer.h5")); });
}

TEST_CASE("a value that cannot be is named with its dataset") {
  const ScratchFolder scratch;
  StepMetrics step = metro::test::decode_step(0.0, {{4, 3, 5, 2}, {1, 1, 1, 1}});
  step.layers[1].lambda = 1 << 30;
  MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity());
  writer.add(step);
  writer.finish({});

  const MetricsReader reader(scratch.file("metrics.h5"));

  expect_error(ExitCode::input, {"metrics.h5", "/decode/lambda", "1073741824", "0 to 4"}, [&] { steps_in(reader); });
}

TEST_CASE("a disk that fills up while metrics are written is the fault of the machine") {
  const ScratchFolder scratch;
  const metro::test::FileSizeLimit limit(40'000);

  expect_error(ExitCode::machine, {"cannot write", "metrics.h5"}, [&] {
    MetricsWriter writer(scratch.file("metrics.h5"), metro::test::identity(), 1);
    for (const StepMetrics& step : made_up_steps(2000)) {
      writer.add(step);
    }
    writer.finish({});
  });
}
