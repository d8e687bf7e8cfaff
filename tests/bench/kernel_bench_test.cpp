// `metro bench kernels`: what it reports besides times, which no test looks at.
#include "bench/kernel_bench.hpp"
#include "base/file.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <memory>

using metro::ExitCode;
using metro::KernelBenchOptions;
using metro::test::expect_error;
using nlohmann::json;

namespace {

KernelBenchOptions small_options() {
  KernelBenchOptions options;
  options.hidden = 64;
  options.expert_width = 32;
  options.rows = {1, 3};
  options.threads = {1, 2};
  options.simd = {"scalar"};
  options.weight_mib = 1;
  return options;
}

void expect_refusal(const KernelBenchOptions& options, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::usage, texts, [&] { metro::bench_kernels(options, stderr); });
}

}  // namespace

TEST_CASE("bench kernels reports every setting with the limit timed beside it, on paper and in JSON") {
  const metro::test::ScratchFolder folder;
  KernelBenchOptions options = small_options();
  options.json_path = folder.file("out.json");
  const std::string path = folder.file("printed.txt");
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(path.c_str(), "w"), &std::fclose);
    REQUIRE(out != nullptr);

    metro::bench_kernels(options, out.get());
  }

  const std::string printed = metro::read_file(path, ExitCode::input);
  for (const char* text : {"load average", "hidden 64, expert width 32", "scalar, 1 thread;", "scalar, 2 threads;",
                           "experts", "limit", "ratio"}) {
    CAPTURE(text);
    CHECK(printed.find(text) != std::string::npos);
  }
  const json document = json::parse(metro::read_file(options.json_path, ExitCode::input));
  CHECK(document.at("model") == "custom");
  REQUIRE(document.at("settings").size() == 2);
  const json& setting = document.at("settings").at(1);
  CHECK(setting.at("threads") == 2);
  REQUIRE(setting.at("kernels").size() == 2);
  const json& timing = setting.at("kernels").at(1);
  CHECK(timing.at("rows") == 3);
  CHECK(timing.at("bytes") == 3 * 64 * 32 * 2);
  CHECK(timing.at("gb_per_s_max").get<double>() ==
        Approx(timing.at("ratio_of_best").get<double>() * timing.at("limit_gb_per_s_max").get<double>()));
  CHECK(timing.at("us_min") <= timing.at("us_median"));
}

TEST_CASE("bench kernels times several stored types side by side, each with its bytes") {
  const metro::test::ScratchFolder folder;
  KernelBenchOptions options = small_options();
  options.stored_types = {"bf16", "f32", "int8", "fp8", "mxfp4"};
  options.threads = {1};
  options.json_path = folder.file("out.json");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen("/dev/null", "w"), &std::fclose);
  REQUIRE(out != nullptr);

  metro::bench_kernels(options, out.get());

  const json document = json::parse(metro::read_file(options.json_path, ExitCode::input));
  CHECK(document.at("stored_types") == options.stored_types);
  const json& kernels = document.at("settings").at(0).at("kernels");
  REQUIRE(kernels.size() == 10);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    CHECK(kernels[i].at("stored_type") == options.stored_types[i % 5]);
    CHECK(kernels[i].at("rows") == options.rows[i / 5]);
  }
  const std::int64_t num_weights = 3 * 64 * 32;
  const std::int64_t num_scales = 32 + 32 + 64;
  CHECK(kernels[0].at("bytes") == 2 * num_weights);
  CHECK(kernels[1].at("bytes") == 4 * num_weights);
  CHECK(kernels[2].at("bytes") == num_weights + 4 * num_scales);
  const std::int64_t num_panels = 1 + 1 + 2;
  CHECK(kernels[3].at("bytes") == num_weights + 64 * num_panels);
  CHECK(kernels[4].at("bytes") == num_weights / 2 + num_weights / 32);
}

TEST_CASE("bench kernels names an option that is out of range") {
  KernelBenchOptions options = small_options();
  options.model = "gpt";
  expect_refusal(options, {"--model gpt", "qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, deepseek-v3"});
  options = small_options();
  options.repetitions = 6;
  expect_refusal(options, {"--repetitions 6", "from 7"});
  options = small_options();
  options.rows = {0};
  expect_refusal(options, {"--rows 0", "from 1"});
  options = small_options();
  options.threads = {0};
  expect_refusal(options, {"--threads 0"});
  options = small_options();
  options.simd = {"mmx"};
  expect_refusal(options, {"mmx", "auto, avx512, avx2 or scalar"});
  options = small_options();
  options.stored_types = {"bf16", "fp4"};
  expect_refusal(options, {"--type fp4", "bf16, f32, int8, fp8 or mxfp4"});
  options.stored_types = {"mxfp4"};
  options.expert_width = 48;
  expect_refusal(options, {"--type mxfp4: a matrix has 48 inputs, no multiple of 32"});
  options = small_options();
  options.hidden = 0;
  options.expert_width = 4096;
  expect_refusal(options, {"--weights 1", "50331648 bytes"});
}

TEST_CASE("the models of the benchmarks have their published shapes") {
  const metro::ModelShape& shapes = metro::model_shape("deepseek-v3", "--model");

  CHECK(shapes.hidden == 7168);
  CHECK(shapes.expert_width == 2048);
  CHECK(shapes.linears.size() == 7);
}
