// `metro bench route`: what it reports besides times, which no test looks at.
#include "bench/route_bench.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "bench/synthetic_batches.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <memory>

using metro::ExitCode;
using metro::RouteBenchOptions;
using metro::test::expect_error;
using nlohmann::json;

namespace {

// Runs the benchmark; what it prints goes to a file, which is returned.
std::string printed_by(const RouteBenchOptions& options, const metro::test::ScratchFolder& folder) {
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);
    metro::bench_route(options, out.get());
  }
  return metro::read_file(path, ExitCode::input);
}

RouteBenchOptions small_options() {
  RouteBenchOptions options;
  options.shapes = {{16, 4}};
  options.replications = {1.5};
  options.batch_sizes = {64};
  options.top_k = 4;
  options.num_batches = 3;
  options.repetitions = 7;
  options.ranks_per_node = 2;
  return options;
}

}  // namespace

TEST_CASE("a result that cannot be written is refused before anything is measured") {
  const metro::test::ScratchFolder folder;
  RouteBenchOptions options = small_options();
  options.json_path = folder.file("none/out.json");

  expect_error(ExitCode::usage, {"none/out.json", "No such file"}, [&] { printed_by(options, folder); });
  CHECK(metro::read_file(folder.file("printed.txt"), ExitCode::input).empty());
}

TEST_CASE("bench route reports every policy of a saturated batch with its lambda, on paper and in JSON") {
  const metro::test::ScratchFolder folder;
  RouteBenchOptions options = small_options();
  options.json_path = folder.file("out.json");

  const std::string printed = printed_by(options, folder);

  for (const char* text : {"load average", "16 experts, 4 ranks, 1.5 replicas", "256 assignments", "metro-scarce",
                           "vllm-knuth", "exact, nodes", "exact, kernel", "makespan"}) {
    CAPTURE(text);
    CHECK(printed.find(text) != std::string::npos);
  }
  const json document =
      metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out.json", ExitCode::input);
  const json& policies = document.at("settings").at(0).at("policies");
  REQUIRE(policies.size() == 12);
  for (const json& entry : policies) {
    CAPTURE(entry.dump());
    CHECK(entry.at("step_us_min") > 0.0);
    CHECK(entry.at("step_us_median") >= entry.at("step_us_min"));
    if (entry.at("policy").get<std::string>().starts_with("exact")) {
      CHECK(entry.at("lambda_mean") == 4.0);  // 16 experts on 4 ranks
    }
    if (entry.at("policy") == "even") {
      CHECK(entry.at("lambda_mean") == 6.0);  // all slots
    }
  }
  CHECK(policies.at(2).at("counts_us_min") > 0.0);
  CHECK_FALSE(policies.at(3).contains("counts_us_min"));
}

TEST_CASE("bench route takes batches from a file of counts") {
  const metro::test::ScratchFolder folder;
  RouteBenchOptions options = small_options();
  options.counts_path = folder.file("counts.json");
  options.json_path = folder.file("out.json");
  // One active expert, then two: lambda is 1 both times for exact on four ranks.
  std::ofstream(options.counts_path) << R"({"num_experts": 16, "counts": [[9,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],)"
                                     << R"([5,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4]]})";

  printed_by(options, folder);

  const json document =
      metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out.json", ExitCode::input);
  CHECK(document.at("source") == options.counts_path);
  CHECK(document.at("settings").at(0).at("assignments_mean") == 9.0);
  CHECK(document.at("settings").at(0).at("policies").at(2).at("lambda_mean") == 1.0);
}

TEST_CASE("a shape is experts, a slash and ranks") {
  CHECK(metro::parse_shape("128/8").num_experts == 128);
  CHECK(metro::parse_shape("128/8").num_ranks == 8);
  for (const char* text : {"", "128", "128/", "/8", "128/8/2", "128/0", "0/8", "a/8", "128/8x", "-1/8", "65537/8",
                           "128/16385", "99999999999999999999/8"}) {
    CAPTURE(text);
    expect_error(ExitCode::usage, {"bench route: --shape ", text, "EXPERTS/RANKS", "128/8"},
                 [&] { metro::parse_shape(text); });
  }
}

TEST_CASE("options of bench route out of range are refused with the range") {
  const metro::test::ScratchFolder folder;
  const auto refuse = [&](auto change, std::initializer_list<const char*> parts) {
    RouteBenchOptions options = small_options();
    change(options);
    expect_error(ExitCode::usage, parts, [&] { metro::bench_route(options, stdout); });
  };

  refuse([](auto& options) { options.repetitions = 6; }, {"--repetitions 6", "from 7"});
  refuse([](auto& options) { options.num_batches = 0; }, {"--batches 0", "from 1"});
  refuse([](auto& options) { options.batch_sizes = {0}; }, {"--batch 0", "from 1 to 1048576"});
  refuse([](auto& options) { options.ranks_per_node = 0; }, {"--ranks-per-node 0"});
  refuse([](auto& options) { options.top_k = 17; }, {"--top-k 17", "16 experts"});
  refuse([](auto& options) { options.skew = -1.0; }, {"--skew -1", "from 0 to 10"});
  const std::string path = folder.file("counts.json");
  std::ofstream(path) << R"({"num_experts": 2, "counts": [[1, 2]]})";
  refuse([&](auto& options) { options.counts_path = path; }, {"--counts", "has 2 experts", "--shape 2/RANKS"});
}
