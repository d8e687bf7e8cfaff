#include "cli/command_line.hpp"

#include "base/build_info.hpp"
#include "deck/deck.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using metro::ConvertOptions;
using metro::ExitCode;
using metro::ImportTraceOptions;
using metro::InspectOptions;
using metro::ReplayOptions;
using metro::RunOptions;
using metro::TextToPrint;
using metro::test::expect_error;

namespace {

metro::ParsedCommand parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "build/bin/metro");
  return metro::parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

void expect_refusal(const std::vector<const char*>& arguments, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::usage, texts, [&] { parse(arguments); });
  expect_error(ExitCode::usage, {"metro --help"}, [&] { parse(arguments); });
}

std::string printed(const std::vector<const char*>& arguments) {
  return std::get<TextToPrint>(parse(arguments)).text;
}

}  // namespace

TEST_CASE("run takes a deck and nothing else by default") {
  const RunOptions options = std::get<RunOptions>(parse({"run", "deck.toml"}));

  CHECK(options.deck_path == "deck.toml");
  CHECK(options.overrides.empty());
  CHECK_FALSE(options.dry_run);
  CHECK_FALSE(options.overwrite);
  CHECK_FALSE(options.strict);
}

TEST_CASE("run takes overrides in order and flags anywhere among them") {
  const RunOptions options =
      std::get<RunOptions>(parse({"run", "--strict", "deck.toml", "kv.memory=512 MiB", "--dry-run",
                                  "batch.prefill_min=-1", "a.b=[1,2]", "--overwrite"}));

  CHECK(options.deck_path == "deck.toml");
  CHECK(options.overrides == std::vector<std::string>{"kv.memory=512 MiB", "batch.prefill_min=-1", "a.b=[1,2]"});
  CHECK(options.dry_run);
  CHECK(options.overwrite);
  CHECK(options.strict);
}

TEST_CASE("a deck may have the name of a command") {
  CHECK(std::get<RunOptions>(parse({"run", "convert"})).deck_path == "convert");
  CHECK(std::get<RunOptions>(parse({"run", "run", "parameters"})).overrides == std::vector<std::string>{"parameters"});
}

TEST_CASE("convert takes a folder and a file") {
  const ConvertOptions plain = std::get<ConvertOptions>(parse({"convert", "models/tiny", "tiny.h5"}));
  const ConvertOptions replacing =
      std::get<ConvertOptions>(parse({"convert", "--overwrite", "models/tiny", "tiny.h5"}));

  CHECK(plain.hf_folder == "models/tiny");
  CHECK(plain.output == "tiny.h5");
  CHECK_FALSE(plain.overwrite);
  CHECK(replacing.overwrite);
  CHECK(plain.weights == "stored");
  CHECK(std::get<ConvertOptions>(parse({"convert", "models/tiny", "tiny.h5", "--weights", "int8"})).weights == "int8");
}

TEST_CASE("inspect verifies unless told not to") {
  CHECK(std::get<InspectOptions>(parse({"inspect", "tiny.h5"})).path == "tiny.h5");
  CHECK(std::get<InspectOptions>(parse({"inspect", "tiny.h5"})).verify);
  CHECK_FALSE(std::get<InspectOptions>(parse({"inspect", "tiny.h5", "--no-verify"})).verify);
  CHECK_FALSE(std::get<InspectOptions>(parse({"inspect", "metrics.h5"})).as_json);
  CHECK(std::get<InspectOptions>(parse({"inspect", "metrics.h5", "--json"})).as_json);
}

TEST_CASE("replay takes a trace, and lists with commas") {
  const ReplayOptions plain = std::get<ReplayOptions>(parse({"replay", "t.h5"}));
  const ReplayOptions full = std::get<ReplayOptions>(
      parse({"replay",  "--placement", "eplb,p.json",   "--policies", "metro,exact", "--batch", "4,8",
             "--ranks", "8,16",        "--replication", "1,1.5",      "--layers",    "0,4-7",   "t.h5",
             "--draws", "7",           "--stride",      "3",          "--seed",      "9",       "--rows",
             "all",     "--plan-on",   "odd",           "--judge-on", "even",        "--json",  "a.json",
             "--csv",   "a.csv",       "--dump",        "a.jsonl",    "--overwrite"}));

  CHECK(plain.trace_path == "t.h5");
  CHECK(plain.placements == std::vector<std::string>{"eplb"});
  CHECK(plain.policies.empty());
  CHECK(plain.batch_sizes == std::vector<std::int64_t>{32});
  CHECK(plain.replications == std::vector<double>{1.0, 1.125, 1.25, 1.5});
  CHECK(plain.plan_on == "even");
  CHECK(full.trace_path == "t.h5");
  CHECK(full.placements == std::vector<std::string>{"eplb", "p.json"});
  CHECK(full.policies == std::vector<std::string>{"metro", "exact"});
  CHECK(full.batch_sizes == std::vector<std::int64_t>{4, 8});
  CHECK(full.rank_counts == std::vector<std::int64_t>{8, 16});
  CHECK(full.replications == std::vector<double>{1.0, 1.5});
  CHECK(full.layers == std::vector<std::string>{"0", "4-7"});
  CHECK(full.num_draws == 7);
  CHECK(full.stride == 3);
  CHECK(full.seed == 9);
  CHECK(full.rows == "all");
  CHECK(full.plan_on == "odd");
  CHECK(full.judge_on == "even");
  CHECK(full.json_path == "a.json");
  CHECK(full.csv_path == "a.csv");
  CHECK(full.dump_path == "a.jsonl");
  CHECK(full.overwrite);
}

TEST_CASE("import-trace takes a kind, a source and an output") {
  const ImportTraceOptions options = std::get<ImportTraceOptions>(parse(
      {"import-trace", "olmoe-counts", "c4.json", "t.h5", "--tokens", "500", "--request-tokens", "50", "--seed", "4"}));

  CHECK(options.kind == "olmoe-counts");
  CHECK(options.source == "c4.json");
  CHECK(options.output == "t.h5");
  CHECK(options.num_tokens == 500);
  CHECK(options.tokens_per_request == 50);
  CHECK(options.seed == 4);
  CHECK_FALSE(options.overwrite);
}

TEST_CASE("numbers of replay and import-trace that make no sense are refused by name") {
  expect_refusal({"replay"}, {"replay: TRACE is required"});
  expect_refusal({"replay", "t.h5", "--batch", "4,0"}, {"replay: --batch", "1", "1000000"});
  expect_refusal({"replay", "t.h5", "--ranks", "many"}, {"replay:", "--ranks", "many"});
  expect_refusal({"replay", "t.h5", "--draws", "-1"}, {"replay: --draws"});
  expect_refusal({"replay", "t.h5", "--replication", "x"}, {"replay:", "--replication", "x"});
  expect_refusal({"import-trace", "olmoe-counts", "a"}, {"import-trace: OUT is required"});
  expect_refusal({"import-trace", "olmoe-counts", "a", "b", "--tokens", "0"}, {"import-trace: --tokens"});
}

TEST_CASE("parameters prints the reference page, byte for byte") {
  CHECK(printed({"parameters"}) == metro::parameters_page());
}

TEST_CASE("bench route takes lists, numbers and files, and bench alone is refused") {
  const auto options = std::get<metro::BenchRouteOptions>(
      parse({"bench", "route", "--shape", "128/8", "256/16", "--batch", "4", "--json", "out.json"}));

  CHECK(options.shapes == std::vector<std::string>{"128/8", "256/16"});
  CHECK(options.batch_sizes == std::vector<std::int64_t>{4});
  CHECK(options.replications.empty());
  CHECK(options.repetitions == 9);
  CHECK(options.json_path == "out.json");
  expect_refusal({"bench"}, {"bench: A subcommand is required"});
  expect_refusal({"bench", "route", "--top-k", "x"}, {"bench: ", "--top-k = x"});
  expect_refusal({"bench", "route", "--fast"}, {"bench: unexpected argument '--fast'"});
}

TEST_CASE("bench kernels takes lists, numbers and a file") {
  const auto options = std::get<metro::KernelBenchOptions>(
      parse({"bench",     "kernels",   "--model", "mixtral-8x7b",   "--rows", "1",       "8",
             "--threads", "1",         "2",       "--simd",         "avx2",   "--type",  "f32",
             "int8",      "--weights", "2048",    "--experts-only", "--json", "out.json"}));

  CHECK(options.model == "mixtral-8x7b");
  CHECK(options.rows == std::vector<std::int64_t>{1, 8});
  CHECK(options.threads == std::vector<std::int64_t>{1, 2});
  CHECK(options.simd == std::vector<std::string>{"avx2"});
  CHECK(options.stored_types == std::vector<std::string>{"f32", "int8"});
  CHECK(options.weight_mib == 2048);
  CHECK(options.experts_only);
  CHECK(options.json_path == "out.json");
  expect_refusal({"bench", "kernels", "--rows", "x"}, {"bench: ", "--rows"});
}

TEST_CASE("bench exchange takes a model or its numbers, batches and a link") {
  const auto options = std::get<metro::ExchangeBenchOptions>(parse({"bench",     "exchange",
                                                                    "--model",   "mixtral-8x7b",
                                                                    "--hidden",  "512",
                                                                    "--top-k",   "4",
                                                                    "--experts", "64",
                                                                    "--batch",   "2",
                                                                    "16",        "--replication",
                                                                    "1.5",       "--repetitions",
                                                                    "11",        "--latency-us",
                                                                    "2.5",       "--bandwidth-gb",
                                                                    "25",        "--memory-gb",
                                                                    "900",       "--json",
                                                                    "out.json"}));

  CHECK(options.model == "mixtral-8x7b");
  CHECK(options.hidden == 512);
  CHECK(options.top_k == 4);
  CHECK(options.num_experts == 64);
  CHECK(options.batch_sizes == std::vector<std::int64_t>{2, 16});
  CHECK(options.replication == 1.5);
  CHECK(options.repetitions == 11);
  CHECK(options.latency_us == 2.5);
  CHECK(options.bandwidth_gb == 25.0);
  CHECK(options.memory_gb == 900.0);
  CHECK(options.json_path == "out.json");
  expect_refusal({"bench", "exchange", "--batch", "x"}, {"bench: ", "--batch"});
}

TEST_CASE("bench gpu takes models, GPUs and what launches cost") {
  const auto options = std::get<metro::GpuBenchOptions>(
      parse({"bench",      "gpu", "--model",   "deepseek-v3", "--gpu",       "h200",    "b200",     "--ranks",
             "8",          "16",  "--batch",   "4",           "--launch-us", "3",       "--gap-us", "0.5",
             "--graph-us", "0",   "--weights", "int8",        "--json",      "out.json"}));

  CHECK(options.models == std::vector<std::string>{"deepseek-v3"});
  CHECK(options.gpus == std::vector<std::string>{"h200", "b200"});
  CHECK(options.ranks == std::vector<std::int64_t>{8, 16});
  CHECK(options.batch_sizes == std::vector<std::int64_t>{4});
  CHECK(options.launch_us == 3.0);
  CHECK(options.gap_us == 0.5);
  CHECK(options.graph_us == 0.0);
  CHECK(options.weights == "int8");
  CHECK(options.json_path == "out.json");
  expect_refusal({"bench", "gpu", "--launch-us", "x"}, {"bench: ", "--launch-us"});
}

TEST_CASE("bench scaling takes models, ranks, a machine and figures in place of its own") {
  const auto options = std::get<metro::ScalingBenchOptions>(parse({"bench",
                                                                   "scaling",
                                                                   "--model",
                                                                   "mixtral-8x7b",
                                                                   "deepseek-v3",
                                                                   "--ranks",
                                                                   "8",
                                                                   "64",
                                                                   "--batch",
                                                                   "2",
                                                                   "--machine",
                                                                   "cpu",
                                                                   "--memory-gbs",
                                                                   "300",
                                                                   "--network-gbs",
                                                                   "12.5",
                                                                   "--latency-us",
                                                                   "0",
                                                                   "--policy",
                                                                   "even",
                                                                   "--sequence-ns",
                                                                   "10",
                                                                   "--weights",
                                                                   "int8",
                                                                   "--json",
                                                                   "out.json"}));

  CHECK(options.models == std::vector<std::string>{"mixtral-8x7b", "deepseek-v3"});
  CHECK(options.ranks == std::vector<std::int64_t>{8, 64});
  CHECK(options.batch_sizes == std::vector<std::int64_t>{2});
  CHECK(options.machine == "cpu");
  CHECK(options.memory_gbs == 300.0);
  CHECK(options.network_gbs == 12.5);
  CHECK(options.latency_us == 0.0);
  CHECK(options.hop_us < 0.0);
  CHECK(options.policy == "even");
  CHECK(options.sequence_ns == 10.0);
  CHECK(options.weights == "int8");
  CHECK(options.json_path == "out.json");
  expect_refusal({"bench", "scaling", "--ranks", "x"}, {"bench: ", "--ranks"});
}

TEST_CASE("version and help are printed") {
  CHECK_THAT(printed({"--version"}), Equals(metro::build_description() + "\n"));
  CHECK_THAT(printed({"--help"}), Contains("run") && Contains("convert") && Contains("inspect") &&
                                      Contains("parameters") && Contains("Exit codes") &&
                                      Contains("share/metro/inputs"));
  CHECK_THAT(printed({"-h"}), Contains("Usage: metro"));
}

TEST_CASE("help of run shows its options and every parameter of a deck") {
  const std::string help = printed({"run", "--help"});

  CHECK_THAT(help, Contains("Usage: metro run") && Contains("DECK") && Contains("--dry-run"));
  CHECK_THAT(help, Contains(metro::parameters_help()));
  CHECK_THAT(printed({"convert", "--help"}),
             Contains("HF_DIR") && Contains("OUT") && Contains("--overwrite") && Contains("--weights"));
  CHECK_THAT(printed({"inspect", "-h"}), Contains("--no-verify"));
}

TEST_CASE("a command line without a command, or with an unknown one, is refused") {
  expect_refusal({}, {"no command given"});
  expect_refusal({"rum", "deck.toml"},
                 {"unknown command 'rum'", "run, convert, inspect, plan, replay, import-trace, bench, parameters"});
}

TEST_CASE("an unknown option or a superfluous argument is refused by name") {
  expect_refusal({"--dry-run"}, {"unexpected argument '--dry-run'"});
  expect_refusal({"run", "deck.toml", "--dryrun"}, {"run: unexpected argument '--dryrun'"});
  expect_refusal({"convert", "a", "b", "c"}, {"convert: unexpected argument 'c'"});
  expect_refusal({"inspect", "a", "-x"}, {"inspect: unexpected argument '-x'"});
  expect_refusal({"convert", "a", "--overwite"}, {"convert: unexpected argument '--overwite'"});
  expect_refusal({"parameters", "x"}, {"parameters: unexpected argument 'x'"});
}

TEST_CASE("a missing argument is refused by name") {
  expect_refusal({"run"}, {"run: DECK is required"});
  expect_refusal({"run", "--strict"}, {"run: DECK is required"});
  expect_refusal({"convert", "models/tiny"}, {"convert: OUT is required"});
  expect_refusal({"inspect"}, {"inspect: FILE is required"});
}

TEST_CASE("a usage error is one line") {
  for (const std::vector<const char*>& arguments : std::vector<std::vector<const char*>>{
           {}, {"rum"}, {"run"}, {"run", "d", "--overwrite=maybe"}, {"run", "d", "-x"}}) {
    try {
      parse(arguments);
      FAIL("no error");
    } catch (const metro::Error& error) {
      CHECK_THAT(error.what(), !Contains("\n"));
    }
  }
}

TEST_CASE("plan takes what to plan with, for which job, and where to write") {
  const metro::PlanOptions options = std::get<metro::PlanOptions>(
      parse({"plan", "--trace", "t.h5", "--ranks", "16", "--nodes", "2", "--replication", "1.25", "--batch", "8,32",
             "--spread", "--seed", "7", "--out", "p.json", "--overwrite"}));

  CHECK(options.trace_path == "t.h5");
  CHECK(options.loads_path.empty());
  CHECK(options.placement.empty());
  CHECK(options.num_ranks == 16);
  CHECK(options.num_nodes == 2);
  CHECK(options.replication == 1.25);
  CHECK(options.batch_sizes == std::vector<std::int64_t>{8, 32});
  CHECK(options.spread_over_layers);
  CHECK(options.seed == 7);
  CHECK(options.output == "p.json");
  CHECK(options.overwrite);
}

TEST_CASE("plan refuses counts below one and arguments that nothing takes") {
  expect_refusal({"plan", "--ranks", "0"}, {"plan: ", "--ranks"});
  expect_refusal({"plan", "--batch", "4,0"}, {"plan: ", "--batch"});
  expect_refusal({"plan", "extra"}, {"plan: ", "unexpected argument 'extra'"});
}
