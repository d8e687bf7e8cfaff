// `metro bench replicated`: that it runs a job of 1024 ranks in one process, and that what a rank holds for all of them
// grows no faster than their number. No test looks at its times.
#include "bench/replicated_bench.hpp"

#include "base/file.hpp"
#include "base/json.hpp"
#include "bench/model_shapes.hpp"
#include "bench/pretended_step.hpp"
#include "decoder/expert_service.hpp"
#include "decoder/message_header.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>

using metro::ExitCode;
using metro::ReplicatedBenchOptions;
using metro::ReplicatedCost;
using metro::test::expect_error;
using nlohmann::json;

namespace {

ReplicatedBenchOptions small_options() {
  ReplicatedBenchOptions options;
  options.model = "tiny";
  options.ranks = {4, 16};
  options.batch_sizes = {2};
  options.policies = {"exact", "even"};
  options.repetitions = 7;
  return options;
}

std::string printed_by(const ReplicatedBenchOptions& options, const metro::test::ScratchFolder& folder) {
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);
    metro::bench_replicated(options, out.get());
  }
  return metro::read_file(path, ExitCode::input);
}

void check_linear(const ReplicatedCost& of_256, const ReplicatedCost& of_1024) {
  REQUIRE(of_256.memory.size() == of_1024.memory.size());
  for (std::size_t i = 0; i < of_256.memory.size(); ++i) {
    CAPTURE(of_256.memory[i].name, of_256.memory[i].num_bytes, of_1024.memory[i].num_bytes);
    CHECK(of_256.memory[i].num_bytes > 0);
    CHECK(static_cast<double>(of_1024.memory[i].num_bytes) <= 4.2 * static_cast<double>(of_256.memory[i].num_bytes));
  }
}

}  // namespace

TEST_CASE("what a rank holds for all ranks grows at most linearly from 256 to 1024 ranks") {
  ReplicatedBenchOptions options;
  options.repetitions = 7;

  check_linear(metro::cost_of_start(options, 256), metro::cost_of_start(options, 1024));
  check_linear(metro::cost_of_steps(options, 256, 8, "exact"), metro::cost_of_steps(options, 1024, 8, "exact"));
}

TEST_CASE("headers of results take the same memory for every rank, however many rounds there may be") {
  metro::ModelSpec spec;
  spec.hidden_size = 2048;
  spec.moe = {.num_experts = 128, .top_k = 8, .intermediate_size = 768};
  metro::DecoderLimits limits;
  limits.max_rows = 512;
  limits.exchange_bytes = std::int64_t{4} << 20;  // more ranks, more rounds

  const auto results_of = [&](std::int64_t num_ranks) {
    return metro::ExpertService::sizes(spec, num_ranks, limits).results;
  };

  CHECK(results_of(1024) - results_of(256) == 768 * metro::header_floats);
}

TEST_CASE("first, middle and last rank of 1024 pretended ranks agree on the schedule of their steps") {
  metro::PretendedStepOptions options;
  options.shape = &metro::model_shape("tiny", "test");
  options.num_ranks = 1024;
  options.batch = 2;
  options.num_generated = 4;
  const auto digest_of = [&](std::int64_t rank) {
    options.rank = rank;
    metro::PretendedStep step(options);
    step.prefill();
    step.decode();
    CHECK(step.lambda() == 1);  // 8 experts, more hosts than that
    return step.digest();
  };

  const metro::Digest first = digest_of(0);

  CHECK(digest_of(512) == first);
  CHECK(digest_of(1023) == first);
}

TEST_CASE("growth is an exponent of the number of ranks") {
  CHECK(metro::growth_exponent(3.0, 64, 12.0, 256) == Approx(1.0));
  CHECK(metro::growth_exponent(3.0, 64, 48.0, 256) == Approx(2.0));
  CHECK(metro::growth_exponent(3.0, 64, 3.0, 1024) == Approx(0.0));
  CHECK(metro::growth_exponent(0.0, 64, 3.0, 1024) == 0.0);
}

TEST_CASE("bench replicated reports start and steps of every policy, on paper and in JSON") {
  const metro::test::ScratchFolder folder;
  ReplicatedBenchOptions options = small_options();
  options.json_path = folder.file("out.json");

  const std::string printed = printed_by(options, folder);

  for (const char* text : {"load average", "top-2 of 8 experts", "4 ranks", "16 ranks", "EPLB placement of a layer",
                           "step, 2 sequences per rank, even", "decode exchange, auto", "KiB"}) {
    CAPTURE(text);
    CHECK(printed.find(text) != std::string::npos);
  }
  const json document =
      metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out.json", ExitCode::input);
  CHECK(document.at("start").size() == 2);
  REQUIRE(document.at("steps").size() == 2);
  CHECK(document.at("steps").at(1).at("policy") == "even");
  CHECK(document.at("steps").at(0).at("costs").at(1).at("ranks") == 16);
  for (const json& time : document.at("steps").at(0).at("costs").at(1).at("times")) {
    CAPTURE(time.dump());
    CHECK(time.at("us_median") >= time.at("us_min"));
  }
}

TEST_CASE("options of bench replicated out of range are refused with the range") {
  const auto refuse = [&](auto change, std::initializer_list<const char*> parts) {
    ReplicatedBenchOptions options = small_options();
    change(options);
    expect_error(ExitCode::usage, parts, [&] { metro::bench_replicated(options, stdout); });
  };

  refuse([](auto& options) { options.model = "gpt"; }, {"bench replicated: --model gpt", "qwen3-30b-a3b"});
  refuse([](auto& options) { options.ranks = {1, 4}; }, {"--ranks 1", "from 2 to 16384"});
  refuse([](auto& options) { options.ranks = {16, 4}; }, {"--ranks", "ascending"});
  refuse([](auto& options) { options.batch_sizes = {0}; }, {"--batch 0", "from 1 to 4096"});
  refuse([](auto& options) { options.policies = {"best"}; }, {"--policies best", "no routing policy"});
  refuse([](auto& options) { options.replication = 0.5; }, {"--replication 0.5", "from 1 to 64"});
  refuse([](auto& options) { options.ranks_per_node = 0; }, {"--ranks-per-node 0"});
  refuse([](auto& options) { options.repetitions = 6; }, {"--repetitions 6", "from 7"});
  refuse([](auto& options) { options.json_path = "none/out.json"; }, {"none/out.json"});
}
