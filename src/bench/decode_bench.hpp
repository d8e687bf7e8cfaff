// `metro bench decode`: whole decode steps, and prefill, of a model with random weights, on all ranks, as a share of
// what memory allows. All settings take turns, each step after a stretch of reading that times memory and leaves
// nothing of the step before in a cache.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct DecodeBenchOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t num_layers = 2;
  std::int64_t vocab = 2048;
  std::int64_t context = 64;                                      // tokens of every sequence before the step
  std::vector<std::int64_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};  // sequences of all ranks
  std::vector<std::string> weights{"bf16"};                       // of experts and projections: bf16, int8
  std::vector<double> replications{1.0};
  std::vector<std::string> policies{"exact"};
  std::vector<std::int64_t> threads{1};  // of a rank
  std::int64_t prefill_tokens = 0;       // of one rank; 0: no prefill
  std::int64_t flush_mib = 512;          // read by each rank before each step; several times a cache
  std::int64_t repetitions = 9;
  std::string json_path;  // empty: no file
};

// What is timed: one way to run steps of one size.
struct DecodeSetting {
  bool prefill = false;
  std::int64_t num_rows = 0;  // of all ranks
  std::string weights;
  double replication = 1.0;
  std::string policy;
  std::int64_t num_threads = 1;
};

// Of one step; the slowest rank counts.
struct DecodeSample {
  double seconds = 0.0;
  double bytes_per_s = 0.0;    // of the slowest rank, reading at the same time as the others
  std::int64_t bytes = 0;      // that the busiest ranks must read: sum over phases that a collective ends
  double lambda = 0.0;         // activated replicas of the busiest rank, mean over layers
  double num_activated = 0.0;  // replicas of all ranks, mean over layers
  double flops_per_s = 0.0;    // prefill: of fused multiply-adds in registers, of the slowest rank
};

struct DecodeResult {
  DecodeSetting setting;
  std::vector<DecodeSample> samples;
};

// Collective, the same options on all ranks. Prints a table on rank 0 and writes options.json_path. Kokkos must be
// running. Throws AgreedError(usage) for options out of range.
void bench_decode(const DecodeBenchOptions& options, Transport& transport, std::FILE* out);

// Collective. Times all settings; options are in range.
std::vector<DecodeResult> time_decode(const DecodeBenchOptions& options, Transport& transport);

// Floating-point operations of `num_tokens` tokens through all layers and the head: two per weight.
double flops_of_tokens(const DecodeBenchOptions& options, std::int64_t num_tokens);

}  // namespace metro
