// The subcommands of `metro bench` and their options.
#include "cli/command_table.hpp"

namespace metro {

namespace {

CLI::App* add_bench_decode(CLI::App& bench, BenchDecodeOptions& options) {
  CLI::App* decode = bench.add_subcommand(
      "decode", "Whole steps of a model with random weights as a share of memory bandwidth, alone or under mpirun");
  const auto add = [decode](const char* name, auto& value, const char* what) {
    return decode->add_option(name, value, what)->type_name("");
  };
  add("--model", options.bench.model,
      "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, qwen1.5-moe-a2.7b, olmoe-1b-7b or tiny");
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
  add("--model", options.model,
      "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b or olmoe-1b-7b");
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
                   "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b, "
                   "olmoe-1b-7b or tiny")
      ->type_name("");
  kernels->add_option("--hidden", options.hidden, "another width of rows; then only experts")->type_name("");
  kernels->add_option("--width", options.expert_width, "another width of an expert; then only experts")->type_name("");
  kernels->add_option("--rows", options.rows, "rows of an expert or matrix; default 1 2 4 8 16")->type_name("");
  kernels->add_option("--threads", options.threads, "default 1")->type_name("");
  kernels->add_option("--simd", options.simd, "auto (default), avx512, avx2, scalar")->type_name("");
  kernels->add_option("--type", options.stored_types, "of the weights: bf16 (default), f32, int8, fp8, mxfp4")->type_name("");
  kernels->add_option("--weights", options.weight_mib, "MiB of different weights; default 1280")->type_name("");
  kernels->add_option("--experts-per-call", options.experts_per_call, "default 16")->type_name("");
  kernels->add_option("--repetitions", options.repetitions, "at least 7; default 7")->type_name("");
  kernels->add_flag("--experts-only", options.experts_only, "without the linear layers");
  kernels->add_option("--json", options.json_path, "file for the results")->type_name("");
  return kernels;
}

CLI::App* add_bench_convert(CLI::App& bench, ConvertBenchOptions& options) {
  CLI::App* convert = bench.add_subcommand(
      "convert", "Write a slice of a published model with random weights, and convert it, beside a plain copy");
  convert->add_option("CONFIG", options.config_path, "config.json of the model")->required()->type_name("");
  convert->add_option("--layers", options.num_layers, "of the slice; default 1")->type_name("");
  convert->add_option("--folder", options.folder, "to make, for the slice (hf/) and the checkpoint (model.h5)")
      ->required()
      ->type_name("");
  convert->add_option("--weights", options.weights, "as of metro convert; default stored")->type_name("");
  return convert;
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
  add("--model", options.model,
      "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b or olmoe-1b-7b");
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

// Of the benchmarks on paper. `add` adds an option; ranks: what --ranks is about.
template <class Add>
void add_paper_options(const Add& add, PaperOptions& options, const char* ranks) {
  add("--model", options.models,
      "qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b, olmoe-1b-7b; default all");
  add("--ranks", options.ranks, ranks);
  add("--batch", options.batch_sizes, "rows of each rank; default 1 8 32");
  add("--policy", options.policy, "of decode; default exact");
  add("--replication", options.replication, "replicas per expert; default 1, and a slot on every rank");
  add("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7");
  add("--context", options.context, "tokens of every sequence; default 2048");
  add("--weights", options.weights, "bf16 (default), int8");
}

CLI::App* add_bench_gpu(CLI::App& bench, GpuBenchOptions& options) {
  CLI::App* gpu = bench.add_subcommand("gpu", "What a decode step reads and launches on a GPU, on paper");
  const auto add = [gpu](const char* name, auto& value, const char* what) {
    return gpu->add_option(name, value, what)->type_name("");
  };
  add_paper_options(add, options, "ascending, a GPU each; default 1 8");
  add("--gpu", options.gpus, "a100, h100, h200, b200; default all");
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
  add_paper_options(add, options, "ascending; default 8 16 32 64 128 256 512 1024");
  add("--machine", options.machine,
      "a100, h100 (default), h200, b200: 8 to a node, a port each; cpu: sockets, 2 to a node");
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

}  // namespace

void add_bench_commands(CLI::App& app, CommandTable& commands) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure a part of the program: decode, exchange, gpu, kernels, load, replicated, route, scaling");
  bench->require_subcommand(1);
  commands.add(*bench, add_bench_decode);
  commands.add(*bench, add_bench_exchange);
  commands.add(*bench, add_bench_gpu);
  commands.add(*bench, add_bench_kernels);
  commands.add(*bench, add_bench_convert);
  commands.add(*bench, add_bench_load);
  commands.add(*bench, add_bench_replicated);
  commands.add(*bench, add_bench_route);
  commands.add(*bench, add_bench_scaling);
}

}  // namespace metro
