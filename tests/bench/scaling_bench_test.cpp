// `metro bench scaling`: efficiencies and limits of made-up points, what it prints, and what it refuses.
#include "bench/scaling_bench.hpp"

#include "base/file.hpp"
#include "base/json.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>

using Catch::Matchers::Contains;
using metro::ExitCode;
using metro::ScalingBenchOptions;
using metro::ScalingLimits;
using metro::ScalingPoint;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using nlohmann::json;

namespace {

ScalingBenchOptions small_options() {
  ScalingBenchOptions options;
  options.models = {"tiny"};
  options.ranks = {1, 2, 8};
  options.batch_sizes = {1, 4};
  return options;
}

std::string printed_by(const ScalingBenchOptions& options) {
  const ScratchFolder folder;
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);
    metro::bench_scaling(options, out.get());
  }
  return metro::read_file(path, ExitCode::input);
}

ScalingPoint point(std::int64_t num_ranks, double efficiency, double routing_share, double gathered_share) {
  ScalingPoint made_up;
  made_up.num_ranks = num_ranks;
  made_up.efficiency = efficiency;
  made_up.cost.experts = 1.0 - routing_share;
  made_up.cost.routing = 0.5 * routing_share;
  made_up.cost.schedule = 0.5 * routing_share;
  made_up.gathered_share = gathered_share;
  return made_up;
}

}  // namespace

TEST_CASE("limits are the fewest ranks of which something is true, among those that fit") {
  const ScalingLimits limits = metro::limits_of(
      {point(8, 0.0, 0.5, 0.5), point(16, 1.0, 0.02, 0.0), point(32, 1.2, 0.11, 0.05), point(64, 0.49, 0.3, 0.2)});

  CHECK(limits.fitting == 16);
  CHECK(limits.fastest == 32);
  CHECK(limits.half_efficiency == 64);
  CHECK(limits.replicated_work == 32);
  CHECK(limits.gathered_rows == 64);
}

TEST_CASE("limits that are not reached are none, and nothing is said of what does not fit") {
  const ScalingLimits never = metro::limits_of({point(8, 1.0, 0.0, 0.0), point(16, 0.5, 0.1, 0.1)});
  const ScalingLimits too_large = metro::limits_of({point(8, 0.0, 0.5, 0.5)});

  CHECK(never.half_efficiency == 0);
  CHECK(never.replicated_work == 0);
  CHECK(never.gathered_rows == 0);
  CHECK(too_large.fitting == 0);
  CHECK(too_large.fastest == 0);
}

TEST_CASE("efficiency is tokens of a rank over those of the fewest ranks whose memory holds the model") {
  ScalingBenchOptions options = small_options();
  options.context = 1;
  const metro::ModelShape& tiny = metro::model_shape("tiny", "test");
  const metro::RowSampler sampler({.num_experts = 8, .num_tokens = 64, .top_k = 2});

  const std::vector<ScalingPoint> points = metro::scaling_points(options, tiny, sampler, 1);

  REQUIRE(points.size() == 3);
  CHECK(points[0].memory.total() > points[1].memory.total());
  CHECK(points[1].memory.total() > points[2].memory.total());
  CHECK(points[0].slots_per_rank == 8);
  CHECK(points[2].slots_per_rank == 1);
  for (const ScalingPoint& each : points) {
    CHECK(each.tokens_per_s == Approx(1.0 / each.cost.total()));
  }
  options.memory_gb = 1e-9 * 0.5 * (points[0].memory.total() + points[1].memory.total());
  const std::vector<ScalingPoint> without_one = metro::scaling_points(options, tiny, sampler, 1);
  CHECK_FALSE(without_one[0].fits);
  CHECK(without_one[0].efficiency == 0.0);
  CHECK(without_one[1].efficiency == 1.0);
  CHECK(without_one[2].efficiency == Approx(without_one[2].tokens_per_s / without_one[1].tokens_per_s));
}

TEST_CASE("options replace what is published and assumed") {
  ScalingBenchOptions options;
  options.machine = "cpu";
  CHECK(metro::machine_of(options).memory_bytes_per_s == Approx(358.4e9));
  options.memory_gbs = 100.0;
  options.memory_gb = 64.0;
  options.tflops = 2.0;
  options.inside_gbs = 10.0;
  options.network_gbs = 5.0;
  options.ranks_per_node = 4;
  options.latency_us = 0.0;
  options.routing_assignment_ns = 1.5;
  options.weights = "int8";
  options.context = 7;

  const metro::Machine machine = metro::machine_of(options);
  const metro::CostFigures figures = metro::figures_of(options);

  CHECK(machine.memory_bytes_per_s == 100e9);
  CHECK(machine.memory_bytes == 64e9);
  CHECK(machine.flops == 2e12);
  CHECK(machine.inside_bytes_per_s == 10e9);
  CHECK(machine.network_bytes_per_s == 5e9);
  CHECK(machine.ranks_per_node == 4);
  CHECK(figures.latency_s == 0.0);
  CHECK(figures.hop_s == metro::CostFigures{}.hop_s);
  CHECK(figures.routing_assignment_s == Approx(1.5e-9).epsilon(1e-12));
  CHECK(figures.weight_bytes == 1.0);
  CHECK(figures.context == 7.0);
}

TEST_CASE("bench scaling prints its assumptions, a table for each batch, and what grows, and writes JSON") {
  const ScratchFolder folder;
  ScalingBenchOptions options = small_options();
  options.json_path = folder.file("out.json");

  const std::string text = printed_by(options);

  CHECK_THAT(text, Contains("nothing is measured") && Contains("published: h100, 8 ranks a node") &&
                       Contains("measured: routing 5.0 us a layer") && Contains("assumed: a collective 10.0 us") &&
                       Contains("chosen: exact, bf16 weights, 2048 tokens"));
  CHECK_THAT(text, Contains("\ntiny: ") && Contains("fits from 1 ranks") && Contains("not up to 8 ranks") &&
                       Contains("what grows with 4 rows of each rank"));
  const json document = metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out", ExitCode::input);
  CHECK(document.at("machine").at("memory_bytes_per_s") == 3.35e12);
  CHECK(document.at("figures").at("latency_s") == Approx(1e-5));
  REQUIRE(document.at("tables").size() == 2);
  const json& table = document.at("tables").at(1);
  CHECK(table.at("limits").at("fitting") == 1);
  REQUIRE(table.at("points").size() == 3);
  CHECK(table.at("points").at(0).at("exchange_s") == 0.0);
  CHECK(table.at("points").at(2).at("ranks") == 8);
  CHECK(table.at("points").at(2).at("rows_per_rank") == 4);
}

TEST_CASE("a model that does not fit is said not to") {
  ScalingBenchOptions options = small_options();
  options.memory_gb = 0.001;

  CHECK_THAT(printed_by(options), Contains("does not fit into the memory of 8 ranks") && !Contains("fits from"));
}

TEST_CASE("all published models have a table unless some are named") {
  ScalingBenchOptions options;
  options.ranks = {8};
  options.batch_sizes = {1};

  const std::string text = printed_by(options);

  CHECK_THAT(text, Contains("\nqwen3-30b-a3b: ") && Contains("\nqwen3-235b-a22b: ") && Contains("\nmixtral-8x7b: ") &&
                       Contains("\ndeepseek-v3: ") && !Contains("\ntiny: "));
}

TEST_CASE("options of bench scaling out of range are refused with the range") {
  const auto refuse = [](auto change, std::initializer_list<const char*> parts) {
    ScalingBenchOptions options = small_options();
    change(options);
    expect_error(ExitCode::usage, parts, [&] { metro::bench_scaling(options, stdout); });
  };

  refuse([](auto& options) { options.models = {"gpt"}; }, {"bench scaling: --model gpt", "qwen3-30b-a3b"});
  refuse([](auto& options) { options.machine = "abacus"; },
         {"bench scaling: --machine abacus: must be a100, h100, h200, b200 or cpu"});
  refuse([](auto& options) { options.ranks = {0}; }, {"--ranks 0", "from 1 to 16384"});
  refuse([](auto& options) { options.ranks = {8, 4}; }, {"--ranks", "ascending"});
  refuse([](auto& options) { options.ranks = {}; }, {"no ranks"});
  refuse([](auto& options) { options.batch_sizes = {0}; }, {"--batch 0", "from 1 to 4096"});
  refuse(
      [](auto& options) {
        options.ranks = {16384};
        options.batch_sizes = {4096};
      },
      {"--batch 4096: with 16384 ranks more than 1048576 rows"});
  refuse([](auto& options) { options.policy = "best"; }, {"--policy best", "no routing policy"});
  refuse([](auto& options) { options.replication = 0.5; }, {"--replication 0.5", "from 1 to 64"});
  refuse([](auto& options) { options.skew = -1.0; }, {"--skew -1"});
  refuse([](auto& options) { options.context = 0; }, {"--context 0"});
  refuse([](auto& options) { options.weights = "fp8"; }, {"--weights fp8: must be bf16 or int8"});
  refuse([](auto& options) { options.ranks_per_node = -1; }, {"--ranks-per-node -1"});
  refuse([](auto& options) { options.memory_gbs = -5.0; }, {"--memory-gbs -5: must be above 0"});
  refuse([](auto& options) { options.network_gbs = 1e12; }, {"--network-gbs"});
  refuse([](auto& options) { options.hop_us = -2.0; }, {"--hop-us -2: must be 0 to 1e9"});
  refuse([](auto& options) { options.json_path = "none/out.json"; }, {"none/out.json"});
}
