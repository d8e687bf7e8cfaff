#include "cli/command_line.hpp"

#include "deck/deck.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

namespace metro {

namespace {

constexpr const char* version_text = "metro " METRO_VERSION;

constexpr const char* exit_codes_text = R"(Exit codes:
  0 done   2 command line, deck, output   3 input   4 checkpoint   5 machine or a peer   70 internal)";

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run a deck: read requests, write completions (one process per rank)");
  run->add_option("DECK", options.deck_path, "deck: TOML file of parameters")->required()->type_name("");
  run->add_option("OVERRIDES", options.overrides, "table.key=value, replacing what the deck says")->type_name("");
  run->add_flag("--dry-run", options.dry_run, "print the resolved deck and the memory plan, then stop");
  run->add_flag("--overwrite", options.overwrite, "replace the completions of an earlier run");
  run->add_flag("--strict", options.strict, "exit with 3 when requests were rejected");
  run->footer([] { return "Parameters:\n" + parameters_help(); });
  return run;
}

CLI::App* add_convert(CLI::App& app, ConvertOptions& options) {
  CLI::App* convert = app.add_subcommand("convert", "Convert a Hugging Face folder to a checkpoint file");
  convert->add_option("HF_DIR", options.hf_folder, "folder with config.json and safetensors")
      ->required()
      ->type_name("");
  convert->add_option("OUT", options.output, "checkpoint file to write (.h5)")->required()->type_name("");
  convert->add_flag("--overwrite", options.overwrite, "replace an existing file");
  return convert;
}

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show what a checkpoint holds and verify its digests, or sum up the metrics.h5 of a run");
  inspect->add_option("FILE", options.path, "checkpoint file, or metrics.h5")->required()->type_name("");
  inspect->add_flag_callback(
      "--no-verify", [&options] { options.verify = false; }, "do not read the tensors");
  return inspect;
}

// Adds `bench` with its benchmarks; returns the one for routing.
CLI::App* add_bench_route(CLI::App& app, BenchRouteOptions& options) {
  CLI::App* bench = app.add_subcommand("bench", "Measure a part of the program: route");
  bench->require_subcommand(1);
  CLI::App* route = bench->add_subcommand("route", "Time every routing policy per layer, beside the greedy one");
  route->add_option("--shape", options.shapes, "EXPERTS/RANKS; default 128/8 256/16 256/64 512/144")->type_name("");
  route->add_option("--replication", options.replications, "replicas per expert; default 1.125 1.25 1.5")
      ->type_name("");
  route->add_option("--batch", options.batch_sizes, "tokens of all ranks; default 16 64 256 1024")->type_name("");
  route->add_option("--top-k", options.top_k, "experts of a token; default 8")->type_name("");
  route->add_option("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7")->type_name("");
  route->add_option("--ranks-per-node", options.ranks_per_node, "default 8")->type_name("");
  route->add_option("--batches", options.num_batches, "different batches in a repetition; default 32")->type_name("");
  route->add_option("--repetitions", options.repetitions, "at least 7; default 9")->type_name("");
  route->add_option("--counts", options.counts_path, "JSON file of rows per expert, instead of made-up batches")
      ->type_name("");
  route->add_option("--json", options.json_path, "file for the results")->type_name("");
  return route;
}

// One line on what is wrong, beginning with the subcommand.
[[noreturn]] void fail(const CLI::App& app, const std::string& problem) {
  const auto parsed = app.get_subcommands();
  const std::string command = parsed.empty() ? "" : parsed.front()->get_name() + ": ";
  throw Error(ExitCode::usage, fmt::format("{}{} (see metro --help)", command, problem));
}

std::string describe_extra(const CLI::App& app, const std::string& extra) {
  if (app.get_subcommands().empty() && !extra.starts_with('-')) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(command->get_name());
    }
    return fmt::format("unknown command '{}'; commands are {}", extra, fmt::join(names, ", "));
  }
  return fmt::format("unexpected argument '{}'", extra);
}

}  // namespace

ParsedCommand parse_command_line(int argc, const char* const* argv) {
  RunOptions run_options;
  ConvertOptions convert_options;
  InspectOptions inspect_options;
  BenchRouteOptions bench_route_options;
  CLI::App app("Batch inference of Mixture-of-Experts models with activated-expert routing", "metro");
  app.set_version_flag("--version", version_text, "print the version");
  app.require_subcommand(0, 1);
  app.footer(exit_codes_text);
  const CLI::App* run = add_run(app, run_options);
  const CLI::App* convert = add_convert(app, convert_options);
  const CLI::App* inspect = add_inspect(app, inspect_options);
  const CLI::App* bench_route = add_bench_route(app, bench_route_options);
  const CLI::App* parameters = app.add_subcommand("parameters", "Print the reference page of all parameters of a deck");

  // The library reports everything by exceptions; here they become what the program has for it.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return TextToPrint{app.help()};
  } catch (const CLI::CallForVersion&) {
    return TextToPrint{std::string(version_text) + "\n"};
  } catch (const CLI::ParseError& error) {
    // An argument that nothing took is more telling than the one that is missing because of it.
    const std::vector<std::string> extras = app.remaining(true);
    fail(app, extras.empty() ? error.what() : describe_extra(app, extras.front()));
  }

  if (run->parsed()) {
    return run_options;
  }
  if (convert->parsed()) {
    return convert_options;
  }
  if (inspect->parsed()) {
    return inspect_options;
  }
  if (bench_route->parsed()) {
    return bench_route_options;
  }
  if (parameters->parsed()) {
    return TextToPrint{parameters_page()};
  }
  fail(app, "no command given");
}

}  // namespace metro
