// The subcommands of `metro bench` and their options.
#include "cli/command_table.hpp"

namespace metro {

namespace {

CLI::App* add_bench_decode(CLI::App& bench, BenchDecodeOptions& options) {
  CLI::App* decode = bench.add_subcommand(
      "decode", "Whole steps of a model with random weights as a share of memory bandwidth, alone or under mpirun");
  decode->add_option(
      "--model", options.bench.model,
      "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, qwen1.5-moe-a2.7b, olmoe-1b-7b or tiny");
  decode->add_option("--layers", options.bench.num_layers, "default 2");
  decode->add_option("--vocab", options.bench.vocab, "default 2048");
  decode->add_option("--context", options.bench.context, "tokens of every sequence; default 64");
  decode->add_option("--batch", options.bench.batch_sizes, "sequences of all ranks; default 1 2 4 8 16 32 64");
  decode->add_option("--weights", options.bench.weights, "of experts and projections: bf16 (default), int8");
  decode->add_option("--replication", options.bench.replications, "replicas per expert; default 1");
  decode->add_option("--policy", options.bench.policies, "routing policies; default exact");
  decode->add_option("--threads", options.bench.threads, "of a rank; default 1");
  decode->add_option("--prefill", options.bench.prefill_tokens, "also a prefill of that many tokens on each rank");
  decode->add_option("--flush", options.bench.flush_mib, "MiB that each rank reads before each step; default 512");
  decode->add_option("--repetitions", options.bench.repetitions, "at least 7; default 9");
  decode->add_option("--simd", options.simd, "auto (default), avx512, avx2, scalar");
  decode->add_option("--json", options.bench.json_path, "file for the results");
  return decode;
}

CLI::App* add_bench_exchange(CLI::App& bench, ExchangeBenchOptions& options) {
  CLI::App* exchange = bench.add_subcommand(
      "exchange", "Both ways by which decode rows travel, between the ranks of an mpirun and on paper");
  exchange->add_option(
      "--model", options.model,
      "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b or olmoe-1b-7b");
  exchange->add_option("--hidden", options.hidden, "another width of rows");
  exchange->add_option("--top-k", options.top_k, "another number of experts of a row");
  exchange->add_option("--experts", options.num_experts, "another number of experts");
  exchange->add_option("--batch", options.batch_sizes, "rows of each rank; default 1 2 4 8 16 32 64");
  exchange->add_option("--levels", options.levels,
                       "1 and 2 (default both): how rows get to other nodes, as exchange.levels");
  exchange->add_option("--replication", options.replication, "replicas per expert; default 1");
  exchange->add_option("--repetitions", options.repetitions, "at least 7; default 9");
  exchange->add_option("--latency-us", options.latency_us, "on paper, microseconds of a collective; default 10");
  exchange->add_option("--bandwidth-gb", options.bandwidth_gb,
                       "on paper, GB/s of a rank in one direction, in place of published links");
  exchange->add_option("--memory-gb", options.memory_gb,
                       "on paper, GB/s of memory beside --bandwidth-gb; default 3350");
  exchange->add_option("--json", options.json_path, "file for the results");
  return exchange;
}

CLI::App* add_bench_kernels(CLI::App& bench, KernelBenchOptions& options) {
  CLI::App* kernels = bench.add_subcommand("kernels", "Expert FFN and linear layers as a share of memory bandwidth");
  kernels->add_option(
      "--model", options.model,
      "shapes of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b, "
      "olmoe-1b-7b or tiny");
  kernels->add_option("--hidden", options.hidden, "another width of rows; then only experts");
  kernels->add_option("--width", options.expert_width, "another width of an expert; then only experts");
  kernels->add_option("--rows", options.rows, "rows of an expert or matrix; default 1 2 4 8 16");
  kernels->add_option("--threads", options.threads, "default 1");
  kernels->add_option("--simd", options.simd, "auto (default), avx512, avx2, scalar");
  kernels->add_option("--type", options.stored_types, "of the weights: bf16 (default), f32, int8, fp8, mxfp4");
  kernels->add_option("--weights", options.weight_mib, "MiB of different weights; default 1280");
  kernels->add_option("--experts-per-call", options.experts_per_call, "default 16");
  kernels->add_option("--repetitions", options.repetitions, "at least 7; default 7");
  kernels->add_flag("--experts-only", options.experts_only, "without the linear layers");
  kernels->add_option("--json", options.json_path, "file for the results");
  return kernels;
}

CLI::App* add_bench_convert(CLI::App& bench, ConvertBenchOptions& options) {
  CLI::App* convert = bench.add_subcommand(
      "convert", "Write a slice of a published model with random weights, and convert it, beside a plain copy");
  convert->add_option("CONFIG", options.config_path, "config.json of the model")->required();
  convert->add_option("--layers", options.num_layers, "of the slice; default 1");
  convert->add_option("--folder", options.folder, "to make, for the slice (hf/) and the checkpoint (model.h5)")
      ->required();
  convert->add_option("--weights", options.weights, "as of metro convert; default stored");
  return convert;
}

CLI::App* add_bench_load(CLI::App& bench, LoadBenchOptions& options) {
  CLI::App* load =
      bench.add_subcommand("load", "Loading of a checkpoint as a share of a plain read, alone or under mpirun");
  load->add_option("FILE", options.checkpoint_path, "checkpoint written by `metro convert`")->required();
  load->add_option("--threads", options.threads, "of a rank; default 1");
  load->add_option("--repetitions", options.repetitions, "at least 7; default 7");
  load->add_option("--json", options.json_path, "file for the results");
  return load;
}

CLI::App* add_bench_replicated(CLI::App& bench, ReplicatedBenchOptions& options) {
  CLI::App* replicated = bench.add_subcommand(
      "replicated", "What every rank does and holds for all ranks, in one process that pretends a large job");
  replicated->add_option(
      "--model", options.model,
      "shape of qwen3-30b-a3b (default), qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b or olmoe-1b-7b");
  replicated->add_option("--ranks", options.ranks, "of the job, ascending; default 64 256 1024");
  replicated->add_option("--batch", options.batch_sizes, "sequences of each rank; default 1 8 32");
  replicated->add_option("--replication", options.replication,
                         "replicas per expert; default 1, and a slot on every rank");
  replicated->add_option("--policies", options.policies, "of decode; default exact");
  replicated->add_option("--ranks-per-node", options.ranks_per_node, "default 8");
  replicated->add_option("--repetitions", options.repetitions, "at least 7; default 9");
  replicated->add_option("--json", options.json_path, "file for the results");
  return replicated;
}

CLI::App* add_bench_route(CLI::App& bench, BenchRouteOptions& options) {
  CLI::App* route = bench.add_subcommand("route", "Time every routing policy per layer, beside the greedy one");
  route->add_option("--shape", options.shapes, "EXPERTS/RANKS; default 128/8 256/16 256/64 512/144");
  route->add_option("--replication", options.replications, "replicas per expert; default 1.125 1.25 1.5");
  route->add_option("--batch", options.batch_sizes, "tokens of all ranks; default 16 64 256 1024");
  route->add_option("--top-k", options.top_k, "experts of a token; default 8");
  route->add_option("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7");
  route->add_option("--ranks-per-node", options.ranks_per_node, "default 8");
  route->add_option("--batches", options.num_batches, "different batches in a repetition; default 32");
  route->add_option("--repetitions", options.repetitions, "at least 7; default 9");
  route->add_option("--counts", options.counts_path, "JSON file of rows per expert, instead of made-up batches");
  route->add_option("--json", options.json_path, "file for the results");
  return route;
}

// Of the benchmarks on paper. ranks: what --ranks is about.
void add_paper_options(CLI::App& command, PaperOptions& options, const char* ranks) {
  command.add_option(
      "--model", options.models,
      "qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b, deepseek-v3, qwen1.5-moe-a2.7b, olmoe-1b-7b; default all");
  command.add_option("--ranks", options.ranks, ranks);
  command.add_option("--batch", options.batch_sizes, "rows of each rank; default 1 8 32");
  command.add_option("--policy", options.policy, "of decode; default exact");
  command.add_option("--replication", options.replication, "replicas per expert; default 1, and a slot on every rank");
  command.add_option("--skew", options.skew, "deviation of the logarithm of popularity; default 0.7");
  command.add_option("--context", options.context, "tokens of every sequence; default 2048");
  command.add_option("--weights", options.weights, "bf16 (default), int8");
}

CLI::App* add_bench_gpu(CLI::App& bench, GpuBenchOptions& options) {
  CLI::App* gpu = bench.add_subcommand("gpu", "What a decode step reads and launches on a GPU, on paper");
  add_paper_options(*gpu, options, "ascending, a GPU each; default 1 8");
  gpu->add_option("--gpu", options.gpus, "a100, h100, h200, b200; default all");
  gpu->add_option("--launch-us", options.launch_us, "of the host, to launch a kernel alone; default 2.5");
  gpu->add_option("--gap-us", options.gap_us, "of the GPU, between two kernels; default 1");
  gpu->add_option("--graph-us", options.graph_us, "to launch a graph; default 8");
  gpu->add_option("--json", options.json_path, "file for the results");
  return gpu;
}

CLI::App* add_bench_scaling(CLI::App& bench, ScalingBenchOptions& options) {
  CLI::App* scaling =
      bench.add_subcommand("scaling", "A decode step on up to 1024 ranks, and where more do not pay, on paper");
  add_paper_options(*scaling, options, "ascending; default 8 16 32 64 128 256 512 1024");
  scaling->add_option("--machine", options.machine,
                      "a100, h100 (default), h200, b200: 8 to a node, a port each; cpu: sockets, 2 to a node");
  scaling->add_option("--ranks-per-node", options.ranks_per_node, "another machine");
  scaling->add_option("--memory-gbs", options.memory_gbs, "another bandwidth of a rank's memory, GB/s");
  scaling->add_option("--memory-gb", options.memory_gb, "another size of a rank's memory, GB");
  scaling->add_option("--tflops", options.tflops, "another speed of a rank, Tflop/s");
  scaling->add_option("--inside-gbs", options.inside_gbs,
                      "another bandwidth of a rank within its node, GB/s in one direction");
  scaling->add_option("--network-gbs", options.network_gbs, "the same to other nodes");
  scaling->add_option("--latency-us", options.latency_us, "of a collective; default 10");
  scaling->add_option("--hop-us", options.hop_us, "more in an all-gather for every doubling of nodes; default 2");
  scaling->add_option("--message-us", options.message_us,
                      "more in an all-to-all for every rank on other nodes; default 0.2");
  scaling->add_option("--routing-us", options.routing_us, "of a layer; default 5");
  scaling->add_option("--routing-rank-ns", options.routing_rank_ns, "more for every rank; default 100");
  scaling->add_option("--routing-assignment-ns", options.routing_assignment_ns,
                      "more for every row and expert of it; default 6");
  scaling->add_option("--sequence-ns", options.sequence_ns, "of a step for every sequence of the job; default 150");
  scaling->add_option("--json", options.json_path, "file for the results");
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
