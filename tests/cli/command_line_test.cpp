#include "cli/command_line.hpp"

#include "deck/deck.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using metro::ConvertOptions;
using metro::ExitCode;
using metro::InspectOptions;
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
}

TEST_CASE("inspect verifies unless told not to") {
  CHECK(std::get<InspectOptions>(parse({"inspect", "tiny.h5"})).path == "tiny.h5");
  CHECK(std::get<InspectOptions>(parse({"inspect", "tiny.h5"})).verify);
  CHECK_FALSE(std::get<InspectOptions>(parse({"inspect", "tiny.h5", "--no-verify"})).verify);
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

TEST_CASE("version and help are printed") {
  CHECK_THAT(printed({"--version"}), StartsWith("metro ") && Contains("."));
  CHECK_THAT(printed({"--help"}), Contains("run") && Contains("convert") && Contains("inspect") &&
                                      Contains("parameters") && Contains("Exit codes"));
  CHECK_THAT(printed({"-h"}), Contains("Usage: metro"));
}

TEST_CASE("help of run shows its options and every parameter of a deck") {
  const std::string help = printed({"run", "--help"});

  CHECK_THAT(help, Contains("Usage: metro run") && Contains("DECK") && Contains("--dry-run"));
  CHECK_THAT(help, Contains(metro::parameters_help()));
  CHECK_THAT(printed({"convert", "--help"}), Contains("HF_DIR") && Contains("OUT") && Contains("--overwrite"));
  CHECK_THAT(printed({"inspect", "-h"}), Contains("--no-verify"));
}

TEST_CASE("a command line without a command, or with an unknown one, is refused") {
  expect_refusal({}, {"no command given"});
  expect_refusal({"rum", "deck.toml"}, {"unknown command 'rum'", "run, convert, inspect, bench, parameters"});
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
