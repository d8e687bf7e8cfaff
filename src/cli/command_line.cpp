#include "cli/command_line.hpp"

#include "base/build_info.hpp"
#include "cli/command_table.hpp"
#include "deck/deck.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

namespace metro {

namespace {

constexpr const char* footer_text = R"(Exit codes:
  0 done   2 command line, deck, output   3 input   4 checkpoint   5 machine or a peer   70 internal

A deck, prompts and a small model to try: inputs/ of the source, share/metro/inputs/ where metro is installed.)";

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run a deck: read requests, write completions (one process per rank)");
  run->add_option("DECK", options.deck_path, "deck: TOML file of parameters")->required();
  run->add_option("OVERRIDES", options.overrides, "table.key=value, replacing what the deck says");
  run->add_flag("--dry-run", options.dry_run, "print the resolved deck and the memory plan, then stop");
  run->add_flag("--overwrite", options.overwrite, "replace the completions of an earlier run");
  run->add_flag("--strict", options.strict, "exit with 3 when requests were rejected");
  run->footer([] { return "Parameters:\n" + parameters_help(); });
  return run;
}

CLI::App* add_convert(CLI::App& app, ConvertOptions& options) {
  CLI::App* convert = app.add_subcommand("convert", "Convert a Hugging Face folder to a checkpoint file");
  convert->add_option("HF_DIR", options.hf_folder, "folder with config.json and safetensors")->required();
  convert->add_option("OUT", options.output, "checkpoint file to write (.h5)")->required();
  convert->add_flag("--overwrite", options.overwrite, "replace an existing file");
  convert->add_option("--weights", options.weights,
                      "of experts, projections and dense MLPs: stored (default, as in the folder), int8, or bf16 (fp8, "
                      "mxfp4 widened)");
  return convert;
}

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show what a checkpoint holds and verify its digests, or sum up the metrics.h5 of a run");
  inspect->add_option("FILE", options.path, "checkpoint file, or metrics.h5")->required();
  inspect->add_flag_callback(
      "--no-verify", [&options] { options.verify = false; }, "do not read the tensors");
  inspect->add_flag("--json", options.as_json, "of a metrics.h5: one line of JSON, for programs");
  return inspect;
}

// A list as one argument, its values between commas.
template <class T>
CLI::Option* add_list(CLI::App* command, const std::string& name, std::vector<T>& values, const std::string& what) {
  return command->add_option(name, values, what)->delimiter(',')->allow_extra_args(false);
}

CLI::Range seed_range() {
  return {std::int64_t{0}, std::int64_t{1} << 62, "0 to 2^62"};
}

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand(
      "plan",
      "Place experts by a trace or by loads, and explain the placement; or with --model alone: its memory and "
      "on how many GPUs it fits");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000}, "1 to 1000000");
  const CLI::Range number(std::int64_t{0}, std::int64_t{1'000'000}, "0 to 1000000");
  plan->add_option("--trace", options.trace_path, "trace file to plan with (.h5)");
  plan->add_option("--loads", options.loads_path, "loads file (.json); with a trace: for EPLB");
  plan->add_option(
      "--placement", options.placement,
      "activation-aware, eplb, trivial, or a file to explain: .json, or a device map .npy (activation-aware with a "
      "trace, else eplb)");
  plan->add_option("--ranks", options.num_ranks, "number of ranks (8; for memory: as few as it takes)")->check(count);
  plan->add_option("--nodes", options.num_nodes, "nodes, with equally many ranks in order (1)")->check(count);
  plan->add_option("--groups", options.num_groups, "expert groups for EPLB (the model's, else 1)")->check(number);
  plan->add_option("--replication", options.replication, "slots / experts (1)");
  plan->add_option("--slots-per-rank", options.slots_per_rank, "instead of --replication")->check(number);
  add_list(plan, "--batch", options.batch_sizes, "sequences of all ranks together (4,8,16)")->check(count);
  plan->add_option("--steps", options.num_steps, "steps drawn from the trace (12000)")->check(count);
  plan->add_option("--moves", options.moves_per_slot, "length of the search: changes tried per slot (1000)")
      ->check(number);
  plan->add_flag("--spread", options.spread_over_layers, "let layers differ in their slots, with as many in all");
  plan->add_option("--seed", options.seed, "of drawing and searching (0)")->check(seed_range());
  plan->add_option("--threads", options.num_threads, "layers searched at a time (1)")->check(count);
  plan->add_option("--plan-on", options.plan_on, "requests to plan with: even, odd or all (all)");
  plan->add_option("--rows", options.rows, "decode, prefill or all (decode, if there are any)");
  plan->add_option("--model", options.model_path, "checkpoint or config.json: shows bytes, gives the groups");
  add_list(plan, "--gpu-memory", options.gpu_gigabytes, "of GPUs, in GB, for memory (40,80,141,192)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000}, "1 to 100000"));
  plan->add_option("OVERRIDES", options.overrides, "table.key=value of a deck, for memory")
      ->check([](const std::string& text) {
        return text.find('=') == std::string::npos ? "unexpected argument '" + text + "'" : std::string();
      });
  plan->add_option("--out", options.output, "placement file to write (.json)");
  plan->add_flag("--overwrite", options.overwrite, "replace an existing file");
  return plan;
}

CLI::App* add_replay(CLI::App& app, ReplayOptions& options) {
  CLI::App* replay =
      app.add_subcommand("replay", "Route batches drawn from a trace: placements x policies x batches x ranks");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000}, "1 to 1000000");
  replay->add_option("TRACE", options.trace_path, "trace file (.h5)")->required();
  add_list(replay, "--placement", options.placements, "trivial, eplb, activation-aware or placement files (eplb)");
  add_list(replay, "--policies", options.policies, "routing policies (all)");
  add_list(replay, "--batch", options.batch_sizes, "sequences of all ranks together (32)")->check(count);
  add_list(replay, "--ranks", options.rank_counts, "numbers of ranks (8)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{16384}, "1 to 16384"));
  add_list(replay, "--replication", options.replications, "slots / experts (1,1.125,1.25,1.5)");
  add_list(replay, "--layers", options.layers, "layers of the model, such as 0,4-7 (all in the trace)");
  replay->add_option("--moves", options.moves_per_slot, "search for activation-aware: changes tried per slot (200)")
      ->check(count);
  replay->add_option("--draws", options.num_draws, "batches per batch size (200)")->check(count);
  replay->add_option("--stride", options.stride, "steps from one drawn batch to the next (16)")->check(count);
  replay->add_option("--seed", options.seed, "of drawing and of random policies (0)")->check(seed_range());
  replay->add_option("--rows", options.rows, "decode, prefill or all (decode, if there are any)");
  replay->add_option("--plan-on", options.plan_on, "requests that placements are made from (even)");
  replay->add_option("--judge-on", options.judge_on, "requests that batches are drawn from (odd)");
  replay->add_option("--json", options.json_path, "write everything as JSON");
  replay->add_option("--csv", options.csv_path, "write everything as CSV");
  replay->add_option("--dump", options.dump_path, "write every routed batch as a line of JSON");
  replay->add_flag("--overwrite", options.overwrite, "replace existing files");
  return replay;
}

CLI::App* add_import_trace(CLI::App& app, ImportTraceOptions& options) {
  CLI::App* import = app.add_subcommand("import-trace", "Turn a published routing record into a trace file");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000'000}, "1 to 1000000000");
  import->add_option("KIND", options.kind, "what the source is (docs/replay.md)")->required();
  import->add_option("SOURCE", options.source, "folder or file")->required();
  import->add_option("OUT", options.output, "trace file to write (.h5), or a loads file if it ends in .json")
      ->required();
  import->add_option("--tokens", options.num_tokens, "tokens to draw from a count table (16384)")->check(count);
  import->add_option("--request-tokens", options.tokens_per_request, "tokens of a drawn request (128)")->check(count);
  import->add_option("--seed", options.seed, "of drawing (0)")->check(seed_range());
  import->add_flag("--overwrite", options.overwrite, "replace an existing file");
  return import;
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
  CLI::App app("Batch inference of Mixture-of-Experts models with activated-expert routing", "metro");
  app.set_version_flag("--version", build_description(), "print version, commit, build type and compiler");
  app.require_subcommand(0, 1);
  app.footer(footer_text);
  CommandTable commands;
  commands.add(app, add_run);
  commands.add(app, add_convert);
  commands.add(app, add_inspect);
  commands.add(app, add_plan);
  commands.add(app, add_replay);
  commands.add(app, add_import_trace);
  add_bench_commands(app, commands);
  const CLI::App* parameters = app.add_subcommand("parameters", "Print the reference page of all parameters of a deck");

  // The library reports everything by exceptions; here they become what the program has for it.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return TextToPrint{app.help()};
  } catch (const CLI::CallForVersion&) {
    return TextToPrint{build_description() + "\n"};
  } catch (const CLI::ParseError& error) {
    // An argument that nothing took is more telling than the one that is missing because of it.
    const std::vector<std::string> extras = app.remaining(true);
    fail(app, extras.empty() ? error.what() : describe_extra(app, extras.front()));
  }

  if (std::optional<ParsedCommand> command = commands.parsed()) {
    return *std::move(command);
  }
  if (parameters->parsed()) {
    return TextToPrint{parameters_page()};
  }
  fail(app, "no command given");
}

}  // namespace metro
