#include "cli/command_line.hpp"

#include "base/build_info.hpp"
#include "deck/deck.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

namespace metro {

namespace {

constexpr const char* footer_text = R"(Exit codes:
  0 done   2 command line, deck, output   3 input   4 checkpoint   5 machine or a peer   70 internal

A deck, prompts and a small model to try: inputs/ of the source, share/metro/inputs/ where metro is installed.)";

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
  convert
      ->add_option("--weights", options.weights,
                   "of experts, projections and dense MLPs: stored (default, as in the folder) or int8")
      ->type_name("");
  return convert;
}

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show what a checkpoint holds and verify its digests, or sum up the metrics.h5 of a run");
  inspect->add_option("FILE", options.path, "checkpoint file, or metrics.h5")->required()->type_name("");
  inspect->add_flag_callback(
      "--no-verify", [&options] { options.verify = false; }, "do not read the tensors");
  inspect->add_flag("--json", options.as_json, "of a metrics.h5: one line of JSON, for programs");
  return inspect;
}

// A list as one argument, its values between commas.
template <class T>
CLI::Option* add_list(CLI::App* command, const std::string& name, std::vector<T>& values, const std::string& what) {
  return command->add_option(name, values, what)->delimiter(',')->allow_extra_args(false)->type_name("");
}

CLI::Range seed_range() {
  return {std::int64_t{0}, std::int64_t{1} << 62, "0 to 2^62"};
}

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan = app.add_subcommand("plan", "Place experts by a trace or by loads, and explain the placement");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000}, "1 to 1000000");
  const CLI::Range number(std::int64_t{0}, std::int64_t{1'000'000}, "0 to 1000000");
  const auto add = [&](const char* name, auto& value, const char* what) {
    return plan->add_option(name, value, what)->type_name("");
  };
  add("--trace", options.trace_path, "trace file to plan with (.h5)");
  add("--loads", options.loads_path, "loads file (.json); with a trace: for EPLB");
  add("--placement", options.placement,
      "activation-aware, eplb, trivial, or a file to explain: .json, or a device map .npy (activation-aware with a "
      "trace, else eplb)");
  add("--ranks", options.num_ranks, "number of ranks (8)")->check(count);
  add("--nodes", options.num_nodes, "nodes, with equally many ranks in order (1)")->check(count);
  add("--groups", options.num_groups, "expert groups for EPLB (the model's, else 1)")->check(number);
  add("--replication", options.replication, "slots / experts (1)");
  add("--slots-per-rank", options.slots_per_rank, "instead of --replication")->check(number);
  add_list(plan, "--batch", options.batch_sizes, "sequences of all ranks together (4,8,16)")->check(count);
  add("--steps", options.num_steps, "steps drawn from the trace (12000)")->check(count);
  add("--moves", options.moves_per_slot, "length of the search: changes tried per slot (1000)")->check(number);
  plan->add_flag("--spread", options.spread_over_layers, "let layers differ in their slots, with as many in all");
  add("--seed", options.seed, "of drawing and searching (0)")->check(seed_range());
  add("--threads", options.num_threads, "layers searched at a time (1)")->check(count);
  add("--plan-on", options.plan_on, "requests to plan with: even, odd or all (all)");
  add("--rows", options.rows, "decode, prefill or all (decode, if there are any)");
  add("--model", options.model_path, "checkpoint or config.json: shows bytes, gives the groups");
  add("--out", options.output, "placement file to write (.json)");
  plan->add_flag("--overwrite", options.overwrite, "replace an existing file");
  return plan;
}

CLI::App* add_replay(CLI::App& app, ReplayOptions& options) {
  CLI::App* replay =
      app.add_subcommand("replay", "Route batches drawn from a trace: placements x policies x batches x ranks");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000}, "1 to 1000000");
  replay->add_option("TRACE", options.trace_path, "trace file (.h5)")->required()->type_name("");
  add_list(replay, "--placement", options.placements, "trivial, eplb, activation-aware or placement files (eplb)");
  add_list(replay, "--policies", options.policies, "routing policies (all)");
  add_list(replay, "--batch", options.batch_sizes, "sequences of all ranks together (32)")->check(count);
  add_list(replay, "--ranks", options.rank_counts, "numbers of ranks (8)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{16384}, "1 to 16384"));
  add_list(replay, "--replication", options.replications, "slots / experts (1,1.125,1.25,1.5)");
  add_list(replay, "--layers", options.layers, "layers of the model, such as 0,4-7 (all in the trace)");
  replay->add_option("--moves", options.moves_per_slot, "search for activation-aware: changes tried per slot (200)")
      ->check(count)
      ->type_name("");
  replay->add_option("--draws", options.num_draws, "batches per batch size (200)")->check(count)->type_name("");
  replay->add_option("--stride", options.stride, "steps from one drawn batch to the next (16)")
      ->check(count)
      ->type_name("");
  replay->add_option("--seed", options.seed, "of drawing and of random policies (0)")
      ->check(seed_range())
      ->type_name("");
  replay->add_option("--rows", options.rows, "decode, prefill or all (decode, if there are any)")->type_name("");
  replay->add_option("--plan-on", options.plan_on, "requests that placements are made from (even)")->type_name("");
  replay->add_option("--judge-on", options.judge_on, "requests that batches are drawn from (odd)")->type_name("");
  replay->add_option("--json", options.json_path, "write everything as JSON")->type_name("");
  replay->add_option("--csv", options.csv_path, "write everything as CSV")->type_name("");
  replay->add_option("--dump", options.dump_path, "write every routed batch as a line of JSON")->type_name("");
  replay->add_flag("--overwrite", options.overwrite, "replace existing files");
  return replay;
}

CLI::App* add_import_trace(CLI::App& app, ImportTraceOptions& options) {
  CLI::App* import = app.add_subcommand("import-trace", "Turn a published routing record into a trace file");
  const CLI::Range count(std::int64_t{1}, std::int64_t{1'000'000'000}, "1 to 1000000000");
  import->add_option("KIND", options.kind, "what the source is (docs/replay.md)")->required()->type_name("");
  import->add_option("SOURCE", options.source, "folder or file")->required()->type_name("");
  import->add_option("OUT", options.output, "trace file to write (.h5), or a loads file if it ends in .json")
      ->required()
      ->type_name("");
  import->add_option("--tokens", options.num_tokens, "tokens to draw from a count table (16384)")
      ->check(count)
      ->type_name("");
  import->add_option("--request-tokens", options.tokens_per_request, "tokens of a drawn request (128)")
      ->check(count)
      ->type_name("");
  import->add_option("--seed", options.seed, "of drawing (0)")->check(seed_range())->type_name("");
  import->add_flag("--overwrite", options.overwrite, "replace an existing file");
  return import;
}

// Adds `bench`, of which every benchmark is a subcommand.
CLI::App* add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure a part of the program: decode, exchange, gpu, kernels, load, replicated, route, scaling");
  bench->require_subcommand(1);
  return bench;
}

CLI::App* add_bench_decode(CLI::App& bench, BenchDecodeOptions& options) {
  CLI::App* decode = bench.add_subcommand(
      "decode", "Whole steps of a model with random weights as a share of memory bandwidth, alone or under mpirun");
  const auto add = [decode](const char* name, auto& value, const char* what) {
    return decode->add_option(name, value, what)->type_name("");
  };
  add("--model", options.bench.model, "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b or tiny");
  add("--layers", options.bench.num_layers, "default 2");
  add("--vocab", options.bench.vocab, "default 2048");
  add("--context", options.bench.context, "tokens of every sequence; default 64");
  add("--batch", options.bench.batch_sizes, "sequences of all ranks; default 1 2 4 8 16 32 64");
  add("--weights", options.bench.weights, "of experts and projections: bf16 (default), int8");
  add("--replication", options.bench.replications, "replicas per expert; default 1");
  add("--policy", options.bench.policies, "routing policies; default exact");
  add("--threads", options.bench.threads, "of a rank; default 1");
  add("--prefill", options.bench.prefill_tokens, "also a prefill of that many tokens on each rank");
  add("--flush", options.bench.flush_mib, "MiB that each rank reads before each step; default 512");
  add("--repetitions", options.bench.repetitions, "at least 7; default 9");
  add("--simd", options.simd, "auto (default), avx512, avx2, scalar");
  add("--json", options.bench.json_path, "file for the results");
  return decode;
}

CLI::App* add_bench_exchange(CLI::App& bench, ExchangeBenchOptions& options) {
  CLI::App* exchange = bench.add_subcommand(
      "exchange", "Both ways by which decode rows travel, between the ranks of an mpirun and on paper");
  const auto add = [exchange](const char* name, auto& value, const char* what) {
    return exchange->add_option(name, value, what)->type_name("");
  };
  add("--model", options.model, "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b or deepseek-v3");
  add("--hidden", options.hidden, "another width of rows");
  add("--top-k", options.top_k, "another number of experts of a row");
  add("--experts", options.num_experts, "another number of experts");
  add("--batch", options.batch_sizes, "rows of each rank; default 1 2 4 8 16 32 64");
  add("--levels", options.levels, "1 and 2 (default both): how rows get to other nodes, as exchange.levels");
  add("--replication", options.replication, "replicas per expert; default 1");
  add("--repetitions", options.repetitions, "at least 7; default 9");
  add("--latency-us", options.latency_us, "on paper, microseconds of a collective; default 10");
  add("--bandwidth-gb", options.bandwidth_gb, "on paper, GB/s of a rank in one direction, in place of published links");
  add("--memory-gb", options.memory_gb, "on paper, GB/s of memory beside --bandwidth-gb; default 3350");
  add("--json", options.json_path, "file for the results");
  return exchange;
}

CLI::App* add_bench_kernels(CLI::App& bench, KernelBenchOptions& options) {
  CLI::App* kernels = bench.add_subcommand("kernels", "Expert FFN and linear layers as a share of memory bandwidth");
  kernels
      ->add_option("--model", options.model,
                   "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3 or tiny")
      ->type_name("");
  kernels->add_option("--hidden", options.hidden, "another width of rows; then only experts")->type_name("");
  kernels->add_option("--width", options.expert_width, "another width of an expert; then only experts")->type_name("");
  kernels->add_option("--rows", options.rows, "rows of an expert or matrix; default 1 2 4 8 16")->type_name("");
  kernels->add_option("--threads", options.threads, "default 1")->type_name("");
  kernels->add_option("--simd", options.simd, "auto (default), avx512, avx2, scalar")->type_name("");
  kernels->add_option("--type", options.stored_types, "of the weights: bf16 (default), f32, int8")->type_name("");
  kernels->add_option("--weights", options.weight_mib, "MiB of different weights; default 1280")->type_name("");
  kernels->add_option("--experts-per-call", options.experts_per_call, "default 16")->type_name("");
  kernels->add_option("--repetitions", options.repetitions, "at least 7; default 7")->type_name("");
  kernels->add_flag("--experts-only", options.experts_only, "without the linear layers");
  kernels->add_option("--json", options.json_path, "file for the results")->type_name("");
  return kernels;
}

CLI::App* add_bench_load(CLI::App& bench, LoadBenchOptions& options) {
  CLI::App* load =
      bench.add_subcommand("load", "Loading of a checkpoint as a share of a plain read, alone or under mpirun");
  load->add_option("FILE", options.checkpoint_path, "checkpoint written by `metro convert`")->required()->type_name("");
  load->add_option("--threads", options.threads, "of a rank; default 1")->type_name("");
  load->add_option("--repetitions", options.repetitions, "at least 7; default 7")->type_name("");
  load->add_option("--json", options.json_path, "file for the results")->type_name("");
  return load;
}

CLI::App* add_bench_replicated(CLI::App& bench, ReplicatedBenchOptions& options) {
  CLI::App* replicated = bench.add_subcommand(
      "replicated", "What every rank does and holds for all ranks, in one process that pretends a large job");
  const auto add = [replicated](const char* name, auto& value, const char* what) {
    return replicated->add_option(name, value, what)->type_name("");
  };
  add("--model", options.model, "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b or deepseek-v3");
  add("--ranks", options.ranks, "of the job, ascending; default 64 256 1024");
  add("--batch", options.batch_sizes, "sequences of each rank; default 1 8 32");
  add("--replication", options.replication, "replicas per expert; default 1, and a slot on every rank");
  add("--policies", options.policies, "of decode; default exact");
  add("--ranks-per-node", options.ranks_per_node, "default 8");
  add("--repetitions", options.repetitions, "at least 7; default 9");
  add("--json", options.json_path, "file for the results");
  return replicated;
}

CLI::App* add_bench_route(CLI::App& bench, BenchRouteOptions& options) {
  CLI::App* route = bench.add_subcommand("route", "Time every routing policy per layer, beside the greedy one");
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

CLI::App* add_bench_gpu(CLI::App& bench, GpuBenchOptions& options) {
  CLI::App* gpu = bench.add_subcommand("gpu", "What a decode step reads and launches on a GPU, on paper");
  const auto add = [gpu](const char* name, auto& value, const char* what) {
    return gpu->add_option(name, value, what)->type_name("");
  };
  add("--model", options.models, "qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, deepseek-v3; default all");
  add("--gpu", options.gpus, "a100, h100, h200, b200; default all");
  add("--ranks", options.ranks, "ascending, a GPU each; default 1 8");
  add("--batch", options.batch_sizes, "rows of each rank; default 1 8 32");
  add("--policy", options.policy, "of decode; default exact");
  add("--replication", options.replication, "replicas per expert; default 1, and a slot on every rank");
  add("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7");
  add("--context", options.context, "tokens of every sequence; default 2048");
  add("--weights", options.weights, "bf16 (default), int8");
  add("--launch-us", options.launch_us, "of the host, to launch a kernel alone; default 2.5");
  add("--gap-us", options.gap_us, "of the GPU, between two kernels; default 1");
  add("--graph-us", options.graph_us, "to launch a graph; default 8");
  add("--json", options.json_path, "file for the results");
  return gpu;
}

CLI::App* add_bench_scaling(CLI::App& bench, ScalingBenchOptions& options) {
  CLI::App* scaling =
      bench.add_subcommand("scaling", "A decode step on up to 1024 ranks, and where more do not pay, on paper");
  const auto add = [scaling](const char* name, auto& value, const char* what) {
    return scaling->add_option(name, value, what)->type_name("");
  };
  add("--model", options.models, "qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, deepseek-v3; default all");
  add("--machine", options.machine,
      "a100, h100 (default), h200, b200: 8 to a node, a port each; cpu: sockets, 2 to a node");
  add("--ranks", options.ranks, "ascending; default 8 16 32 64 128 256 512 1024");
  add("--batch", options.batch_sizes, "rows of each rank; default 1 8 32");
  add("--policy", options.policy, "of decode; default exact");
  add("--replication", options.replication, "replicas per expert; default 1, and a slot on every rank");
  add("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7");
  add("--context", options.context, "tokens of every sequence; default 2048");
  add("--weights", options.weights, "bf16 (default), int8");
  add("--ranks-per-node", options.ranks_per_node, "another machine");
  add("--memory-gbs", options.memory_gbs, "another bandwidth of a rank's memory, GB/s");
  add("--memory-gb", options.memory_gb, "another size of a rank's memory, GB");
  add("--tflops", options.tflops, "another speed of a rank, Tflop/s");
  add("--inside-gbs", options.inside_gbs, "another bandwidth of a rank within its node, GB/s in one direction");
  add("--network-gbs", options.network_gbs, "the same to other nodes");
  add("--latency-us", options.latency_us, "of a collective; default 10");
  add("--hop-us", options.hop_us, "more in an all-gather for every doubling of nodes; default 2");
  add("--message-us", options.message_us, "more in an all-to-all for every rank on other nodes; default 0.2");
  add("--routing-us", options.routing_us, "of a layer; default 5");
  add("--routing-rank-ns", options.routing_rank_ns, "more for every rank; default 100");
  add("--routing-assignment-ns", options.routing_assignment_ns, "more for every row and expert of it; default 6");
  add("--sequence-ns", options.sequence_ns, "of a step for every sequence of the job; default 150");
  add("--json", options.json_path, "file for the results");
  return scaling;
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
  PlanOptions plan_options;
  ReplayOptions replay_options;
  ImportTraceOptions import_options;
  BenchDecodeOptions bench_decode_options;
  ExchangeBenchOptions bench_exchange_options;
  GpuBenchOptions bench_gpu_options;
  KernelBenchOptions bench_kernels_options;
  LoadBenchOptions bench_load_options;
  ReplicatedBenchOptions bench_replicated_options;
  BenchRouteOptions bench_route_options;
  ScalingBenchOptions bench_scaling_options;
  CLI::App app("Batch inference of Mixture-of-Experts models with activated-expert routing", "metro");
  app.set_version_flag("--version", build_description(), "print version, commit, build type and compiler");
  app.require_subcommand(0, 1);
  app.footer(footer_text);
  const CLI::App* run = add_run(app, run_options);
  const CLI::App* convert = add_convert(app, convert_options);
  const CLI::App* inspect = add_inspect(app, inspect_options);
  const CLI::App* plan = add_plan(app, plan_options);
  const CLI::App* replay = add_replay(app, replay_options);
  const CLI::App* import = add_import_trace(app, import_options);
  CLI::App* bench = add_bench(app);
  const CLI::App* bench_decode = add_bench_decode(*bench, bench_decode_options);
  const CLI::App* bench_exchange = add_bench_exchange(*bench, bench_exchange_options);
  const CLI::App* bench_gpu = add_bench_gpu(*bench, bench_gpu_options);
  const CLI::App* bench_kernels = add_bench_kernels(*bench, bench_kernels_options);
  const CLI::App* bench_load = add_bench_load(*bench, bench_load_options);
  const CLI::App* bench_replicated = add_bench_replicated(*bench, bench_replicated_options);
  const CLI::App* bench_route = add_bench_route(*bench, bench_route_options);
  const CLI::App* bench_scaling = add_bench_scaling(*bench, bench_scaling_options);
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

  if (run->parsed()) {
    return run_options;
  }
  if (convert->parsed()) {
    return convert_options;
  }
  if (inspect->parsed()) {
    return inspect_options;
  }
  if (plan->parsed()) {
    return plan_options;
  }
  if (replay->parsed()) {
    return replay_options;
  }
  if (import->parsed()) {
    return import_options;
  }
  if (bench_decode->parsed()) {
    return bench_decode_options;
  }
  if (bench_exchange->parsed()) {
    return bench_exchange_options;
  }
  if (bench_gpu->parsed()) {
    return bench_gpu_options;
  }
  if (bench_kernels->parsed()) {
    return bench_kernels_options;
  }
  if (bench_load->parsed()) {
    return bench_load_options;
  }
  if (bench_replicated->parsed()) {
    return bench_replicated_options;
  }
  if (bench_route->parsed()) {
    return bench_route_options;
  }
  if (bench_scaling->parsed()) {
    return bench_scaling_options;
  }
  if (parameters->parsed()) {
    return TextToPrint{parameters_page()};
  }
  fail(app, "no command given");
}

}  // namespace metro
