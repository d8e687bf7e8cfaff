// What `metro bench gpu` prints, writes and refuses.
#include "bench/gpu_bench.hpp"

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
using metro::GpuBenchOptions;
using metro::test::expect_error;
using metro::test::ScratchFolder;
using nlohmann::json;

namespace {

std::string printed_by(const GpuBenchOptions& options) {
  const ScratchFolder folder;
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);
    metro::bench_gpu(options, out.get());
  }
  return metro::read_file(path, ExitCode::input);
}

}  // namespace

TEST_CASE("bench gpu says what a step reads and launches and whether the model fits") {
  const ScratchFolder folder;
  GpuBenchOptions options;
  options.models = {"qwen3-30b-a3b"};
  options.gpus = {"a100", "h200"};
  options.ranks = {1};
  options.batch_sizes = {1};
  options.json_path = folder.file("out.json");

  const std::string text = printed_by(options);

  CHECK_THAT(text, Contains("nothing is measured") && Contains("qwen3-30b-a3b: kernels of a layer") &&
                       Contains("4 projections") && Contains("a100") && Contains("23, 1108"));
  const json document = metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out", ExitCode::input);
  REQUIRE(document.at("points").size() == 2);
  const json& a100 = document.at("points").at(0);
  const json& h200 = document.at("points").at(1);
  CHECK(a100.at("lambda") == 8.0);  // one row, eight experts
  CHECK(a100.at("expert_bytes_of_layer") == 8.0 * 2 * 3 * 2048 * 768);
  CHECK(a100.at("read_s").get<double>() == Approx(a100.at("bytes_of_step").get<double>() / 2.039e12));
  CHECK(h200.at("read_s").get<double>() == Approx(h200.at("bytes_of_step").get<double>() / 4.8e12));
  CHECK(a100.at("exchange_s") == 0.0);
  CHECK(a100.at("fits") == true);  // 61 GB of weights in 80
}

TEST_CASE("a model larger than the memory of a GPU is said not to fit, and to fit on enough of them") {
  const ScratchFolder folder;
  GpuBenchOptions options;
  options.models = {"qwen3-235b-a22b"};
  options.gpus = {"h100"};
  options.ranks = {1, 8};
  options.batch_sizes = {1};
  options.json_path = folder.file("out.json");

  printed_by(options);

  const json document = metro::parse_json(metro::read_file(options.json_path, ExitCode::input), "out", ExitCode::input);
  CHECK(document.at("points").at(0).at("fits") == false);  // 470 GB in 80
  CHECK(document.at("points").at(1).at("fits") == true);   // 57 GB of experts, 16 GB of all else
}

TEST_CASE("options of bench gpu out of range are refused with the range") {
  const auto refuse = [](auto change, std::initializer_list<const char*> parts) {
    GpuBenchOptions options;
    change(options);
    expect_error(ExitCode::usage, parts, [&] { metro::bench_gpu(options, stdout); });
  };

  refuse([](auto& options) { options.models = {"gpt"}; }, {"bench gpu: --model gpt", "qwen3-30b-a3b"});
  refuse([](auto& options) { options.gpus = {"v100"}; }, {"bench gpu: --gpu v100: must be a100, h100, h200, b200"});
  refuse([](auto& options) { options.gpus = {"cpu"}; }, {"bench gpu: --gpu cpu: must be a100, h100, h200 or b200"});
  refuse([](auto& options) { options.gpus = {}; }, {"bench gpu: no GPUs"});
  refuse([](auto& options) { options.ranks = {0}; }, {"bench gpu: --ranks 0", "from 1 to 16384"});
  refuse([](auto& options) { options.batch_sizes = {0}; }, {"bench gpu: --batch 0", "from 1 to 4096"});
  refuse([](auto& options) { options.launch_us = -1.0; }, {"bench gpu: --launch-us -1: must be from 0 to 1e6"});
  refuse([](auto& options) { options.graph_us = 1e7; }, {"bench gpu: --graph-us 10000000: must be from 0 to 1e6"});
}
