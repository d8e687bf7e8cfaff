// `metro bench decode`: what it counts and reports besides times, which no test looks at. Under MPI.
#include "bench/decode_bench.hpp"
#include "base/file.hpp"
#include "bench/model_shapes.hpp"
#include "bench/random_weights.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstring>
#include <vector>

using metro::DecodeBenchOptions;
using metro::ExitCode;
using metro::RandomWeights;
using metro::StoredType;
using metro::test::expect_error;

namespace {

DecodeBenchOptions small_options() {
  DecodeBenchOptions options;
  options.model = "tiny";
  options.num_layers = 2;
  options.vocab = 96;
  options.context = 5;
  options.batch_sizes = {1, 6};
  options.flush_mib = 1;
  options.repetitions = 7;
  return options;
}

// hidden 64, 4 query and 2 KV heads of 16, 8 experts of width 32.
constexpr std::int64_t matrix_words = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 8 * 64;  // q, k and v, o, router
constexpr std::int64_t vector_floats = 64 + 16 + 16 + 64;                        // norms of a layer
constexpr std::int64_t expert_words = 3 * 64 * 32;

}  // namespace

TEST_CASE(
    "a step is held against the bytes that the busiest ranks read, and all settings of a size get the same rows") {
  const auto transport = metro::make_mpi_transport(60.0);
  DecodeBenchOptions options = small_options();
  options.policies = {"exact", "even"};
  options.replications = {1.0, static_cast<double>(transport->size())};
  options.prefill_tokens = 9;

  const std::vector<metro::DecodeResult> results = metro::time_decode(options, *transport);

  REQUIRE(results.size() == 2 * (2 * 2 + 1));
  for (const metro::DecodeResult& result : results) {
    CAPTURE(result.setting.num_rows, result.setting.policy, result.setting.replication, result.setting.prefill);
    REQUIRE(result.samples.size() == 7);
    if (result.setting.prefill) {
      CHECK(result.samples[0].flops_per_s > 0.0);
      continue;
    }
    const std::int64_t most_rows = (result.setting.num_rows + transport->size() - 1) / transport->size();
    for (const metro::DecodeSample& sample : result.samples) {
      const auto num_experts_read = static_cast<std::int64_t>(2 * sample.lambda);  // in both layers
      const std::int64_t dense_words = 2 * matrix_words + 96 * 64;
      const std::int64_t floats = 2 * vector_floats + 64 + most_rows * 2 * (2 * 32) * (5 + 1);
      CHECK(sample.bytes == 2 * (dense_words + num_experts_read * expert_words) + 4 * floats);
    }
  }
}

TEST_CASE("with every expert on every rank, exact routing reads an equal part of the active experts on each") {
  const auto transport = metro::make_mpi_transport(60.0);
  DecodeBenchOptions options = small_options();
  options.num_layers = 1;
  options.replications = {static_cast<double>(transport->size())};

  const std::vector<metro::DecodeResult> results = metro::time_decode(options, *transport);

  for (const metro::DecodeSample& sample : results.at(1).samples) {
    const auto active = static_cast<std::int64_t>(sample.num_activated);
    CHECK(active >= 2);  // top_k of one token alone
    CHECK(static_cast<std::int64_t>(sample.lambda) == (active + transport->size() - 1) / transport->size());
  }
}

TEST_CASE("bench decode prints every setting on rank 0 and writes it as JSON") {
  const auto transport = metro::make_mpi_transport(60.0);
  const metro::test::ScratchFolder folder;
  DecodeBenchOptions options = small_options();
  options.weights = {"bf16", "int8"};
  options.json_path = folder.file("out.json");
  const std::string path = folder.file("printed.txt");
  std::FILE* out = std::fopen(path.c_str(), "w");
  REQUIRE(out != nullptr);

  metro::bench_decode(options, *transport, out);
  std::fclose(out);

  const std::string printed = metro::read_file(path, ExitCode::input);
  if (transport->rank() != 0) {
    CHECK(printed.empty());
    return;
  }
  for (const char* text : {"tiny, 2 layers", "load average", "replication", "int8", "exact"}) {
    CAPTURE(text);
    CHECK(printed.find(text) != std::string::npos);
  }
  const nlohmann::json document = nlohmann::json::parse(metro::read_file(options.json_path, ExitCode::input));
  CHECK(document.at("ranks") == transport->size());
  REQUIRE(document.at("settings").size() == 4);
  CHECK(document.at("settings").at(3).at("weights") == "int8");
  CHECK(document.at("settings").at(3).at("rows") == 6);
  CHECK(document.at("settings").at(3).at("samples").size() == 7);
}

TEST_CASE("bench decode refuses options out of range by name") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto expect_refusal = [&](const DecodeBenchOptions& options, std::initializer_list<const char*> texts) {
    expect_error(ExitCode::usage, texts, [&] { metro::bench_decode(options, *transport, stderr); });
  };
  DecodeBenchOptions options = small_options();

  options.repetitions = 6;
  expect_refusal(options, {"bench decode", "--repetitions 6", "from 7"});
  options = small_options();
  options.model = "gpt-2";
  expect_refusal(options, {"bench decode", "--model gpt-2", "qwen3-30b-a3b"});
  options = small_options();
  options.policies = {"best"};
  expect_refusal(options, {"--policy best"});
  options = small_options();
  options.weights = {"fp4"};
  expect_refusal(options, {"--weights fp4", "bf16 or int8"});
  options = small_options();
  options.replications = {0.5};
  expect_refusal(options, {"--replication 0.5", "from 1"});
  options = small_options();
  options.batch_sizes = {0};
  expect_refusal(options, {"--batch 0", "from 1"});
}

TEST_CASE("random weights are the same in every object, and an expert is its part of the tensor") {
  const metro::ModelSpec spec = metro::model_spec_of(metro::model_shape("tiny", "--model"), 1, 96);
  RandomWeights first(spec, StoredType::int8);
  RandomWeights second(spec, StoredType::int8);
  const std::string down = "/layers/000/experts/down";
  const auto size = static_cast<std::size_t>(first.info(down).num_bytes());
  std::vector<std::byte> whole(size);
  std::vector<std::byte> expert(size / 8);

  first.read_tensor(down, whole);
  second.read_expert(down, 5, expert);

  CHECK(first.info(down).type == StoredType::int8);
  CHECK(first.info("/embed").type == StoredType::bf16);
  CHECK(first.info("/layers/000/experts/down_scale").num_elements() == 8 * 64);
  CHECK(std::memcmp(whole.data() + 5 * expert.size(), expert.data(), expert.size()) == 0);
  CHECK(std::memcmp(whole.data() + 4 * expert.size(), expert.data(), expert.size()) != 0);
  CHECK(second.bytes_read() == static_cast<std::int64_t>(expert.size()));
}
