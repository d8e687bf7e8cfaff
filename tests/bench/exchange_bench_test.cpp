// What bench exchange prints and writes, on several ranks.
#include "bench/exchange_bench.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "bench/exchange_paper.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"
#include "transport/agree.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <initializer_list>
#include <memory>

using Catch::Matchers::Contains;
using metro::ExchangeBenchOptions;
using metro::ExitCode;

namespace {

ExchangeBenchOptions small_options() {
  ExchangeBenchOptions options;
  options.hidden = 64;
  options.top_k = 1;
  options.num_experts = 16;
  options.batch_sizes = {4, 1};
  options.repetitions = 7;
  return options;
}

// What all ranks together print, as rank 0 sees it.
std::string printed(const ExchangeBenchOptions& options, metro::Transport& transport) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  REQUIRE(out != nullptr);
  metro::bench_exchange(options, transport, out.get());
  std::string text(static_cast<std::size_t>(std::ftell(out.get())), '\0');
  std::rewind(out.get());
  REQUIRE(std::fread(text.data(), 1, text.size(), out.get()) == text.size());
  return text;
}

}  // namespace

TEST_CASE("bench exchange prints both modes for every batch, the crossover and the paper table, on rank 0") {
  const auto transport = metro::make_mpi_transport(60.0);

  const std::string text = printed(small_options(), *transport);

  if (transport->rank() != 0) {
    CHECK(text.empty());
    return;
  }
  CHECK_THAT(text, Contains("hidden 64, top-1 of 16 experts") &&
                       Contains(std::to_string(transport->size()) + " ranks, 7 repetitions"));
  CHECK_THAT(text, Contains("allgather") && Contains("ids_then_alltoall") && Contains("limit us"));
  CHECK_THAT(text, Contains("assuming 10 us for each collective") && Contains("NVLink 4") && Contains("NVLink 5") &&
                       Contains("InfiniBand NDR") && Contains("deepseek-v3") && Contains("custom"));
  if (transport->size() == 1) {
    CHECK_THAT(text, Contains("one rank sends nothing: there is no crossover"));
  } else {
    CHECK_THAT(text, Contains("bandwidth of a rank") && Contains("crossover measured"));
  }
}

TEST_CASE("the JSON file of bench exchange has bytes by the formulas and times of both modes") {
  const auto transport = metro::make_mpi_transport(60.0);
  const metro::test::ScratchFolder scratch;
  ExchangeBenchOptions options = small_options();
  options.json_path = metro::from_rank_0(*transport, [&] { return scratch.file("exchange.json"); });

  printed(options, *transport);

  if (transport->rank() != 0) {
    return;
  }
  const nlohmann::json document =
      metro::parse_json(metro::read_file(options.json_path, ExitCode::input), options.json_path, ExitCode::input);
  const std::int64_t num_ranks = transport->size();
  CHECK(document.at("benchmark") == "exchange");
  CHECK(document.at("ranks") == num_ranks);
  REQUIRE(document.at("batches").size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const nlohmann::json& batch = document.at("batches").at(i);
    const std::int64_t rows = i == 0 ? 1 : 4;  // sorted
    CHECK(batch.at("rows_per_rank") == rows);
    CHECK(batch.at("rows") == rows * num_ranks);
    const nlohmann::json& allgather = batch.at("allgather");
    const nlohmann::json& ids = batch.at("ids_then_alltoall");
    CHECK(allgather.at("bytes_sent_max") == (num_ranks - 1) * rows * (64 * 4 + 4));
    // With one choice a row goes to at most one other rank.
    CHECK(ids.at("bytes_sent_max") >= (num_ranks - 1) * (rows * 2 + 16));
    CHECK(ids.at("bytes_sent_max") <= (num_ranks - 1) * (rows * 2 + 16) + (num_ranks > 1 ? rows * 64 * 4 : 0));
    for (const nlohmann::json& mode : {allgather, ids}) {
      CHECK(mode.at("us_min") > 0.0);
      CHECK(mode.at("us_min") <= mode.at("us_median"));
      CHECK((num_ranks == 1 ? mode.at("limit_us") == 0.0 : mode.at("limit_us") > 0.0));
    }
  }
  CHECK(document.at("paper").size() == (6 + 1) * 9);
}

TEST_CASE("a bandwidth that is given takes the place of the published links") {
  ExchangeBenchOptions options = small_options();
  options.bandwidth_gb = 25.0;
  options.latency_us = 3.0;
  options.memory_gb = 1000.0;

  const std::vector<metro::Link> links = metro::paper_links(options);

  REQUIRE(links.size() == 1);
  CHECK(links[0].bytes_per_s == 25e9);
  CHECK(links[0].latency_s == Approx(3e-6));
  CHECK(links[0].memory_bytes_per_s == 1e12);
}

TEST_CASE("options out of range are refused by name, on all ranks") {
  const auto transport = metro::make_mpi_transport(60.0);
  const auto refuse = [&](void (*change)(ExchangeBenchOptions&), std::initializer_list<const char*> parts) {
    ExchangeBenchOptions options = small_options();
    change(options);
    metro::test::expect_error(ExitCode::usage, parts, [&] { printed(options, *transport); });
  };

  refuse([](ExchangeBenchOptions& o) { o.repetitions = 6; }, {"bench exchange: --repetitions 6", "from 7 to 100000"});
  refuse([](ExchangeBenchOptions& o) { o.model = "gpt"; }, {"bench exchange: --model gpt", "qwen3-30b-a3b"});
  refuse([](ExchangeBenchOptions& o) { o.batch_sizes = {1, 0}; }, {"--batch 0", "from 1 to 65536"});
  refuse([](ExchangeBenchOptions& o) { o.top_k = 17; }, {"--top-k 17: there are 16 experts"});
  refuse([](ExchangeBenchOptions& o) { o.replication = 0.5; }, {"--replication 0.5", "from 1 to 1024"});
  refuse([](ExchangeBenchOptions& o) { o.latency_us = -1.0; }, {"--latency-us -1"});
  refuse([](ExchangeBenchOptions& o) { o.bandwidth_gb = -1.0; }, {"--bandwidth-gb -1"});
}
