// `metro bench exchange`: both ways by which decode rows reach the experts, timed in turn between the ranks of this
// job, and on paper for published links. Nothing is computed: rows are exchanged as a decode step of one layer does it.
#pragma once

#include "bench/exchange_model.hpp"
#include "decoder/exchange_mode.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct ExchangeBenchOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t hidden = 0, top_k = 0, num_experts = 0;            // 0: of the model
  std::vector<std::int64_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};  // rows of each rank
  std::vector<std::int64_t> levels{1, 2};                         // 2 where several nodes, some with several ranks
  double replication = 1.0;
  std::int64_t repetitions = 9;
  double latency_us = 10.0;   // of a collective, on paper
  double bandwidth_gb = 0.0;  // on paper, GB/s of a rank in one direction; 0: the published links
  double memory_gb = 3350.0;  // GB/s of a rank's memory, where bandwidth_gb is given
  std::string json_path;      // empty: no file
};

// What is exchanged: the model's shape with what the options replace. Throws Error(usage).
ExchangeShape exchange_shape_of(const ExchangeBenchOptions& options);

// One mode with one batch; the slowest rank counts in every repetition.
struct ExchangeTiming {
  std::int64_t bytes_sent_max = 0;  // of the rank that sends most
  double us_min = 0.0, us_median = 0.0;
};
struct ExchangeBatch {
  std::int64_t levels = 1;  // of the transport
  std::int64_t rows_per_rank = 0;
  ExchangeTiming allgather, ids;
};
struct ExchangeResult {
  std::vector<ExchangeBatch> batches;  // ascending in rows, then levels
  double gb_per_s_max = 0.0;           // bandwidth of a rank in one direction, all at the same time; 0 on one rank
  double gb_per_s_median = 0.0;
  // For each of the levels, by medians: rows of all ranks up to which allgather is used; as border_of().
  struct Crossover {
    std::int64_t levels = 1, most_allgather_rows = 0;
  };
  std::vector<Crossover> crossovers;
};

// Collective. Times all batches; options are in range.
ExchangeResult time_exchanges(const ExchangeBenchOptions& options, Transport& transport);

// Collective, the same options on all ranks. Prints tables on rank 0 and writes options.json_path. Kokkos must be
// running. Throws AgreedError(usage) for options out of range.
void bench_exchange(const ExchangeBenchOptions& options, Transport& transport, std::FILE* out);

}  // namespace metro
