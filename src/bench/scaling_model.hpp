// What a decode step costs on paper, on machines that are not here: from the sizes of a model, the published speed of a
// machine, what this program was measured to take for what grows with ranks, and how routing spreads the rows of a
// layer. docs/scaling.md has the formulas, where each figure comes from, and what is left out. All times in seconds.
#pragma once

#include "bench/model_shapes.hpp"
#include "bench/routed_rows.hpp"

#include <cstdint>
#include <string>

namespace metro {

// A rank's share of its node.
struct Machine {
  std::string name;
  std::int64_t ranks_per_node = 8;
  double memory_bytes_per_s = 0.0, memory_bytes = 0.0, flops = 0.0;
  double inside_bytes_per_s = 0.0, network_bytes_per_s = 0.0;  // in one direction: within the node, to others
};

// What is neither published nor follows from the model.
struct CostFigures {
  double latency_s = 10e-6;            // of any collective
  double hop_s = 2e-6;                 // more in an all-gather, for every doubling of nodes
  double message_s = 0.2e-6;           // more in an all-to-all, for every rank on other nodes
  double routing_s = 5e-6;             // of a layer,
  double routing_rank_s = 100e-9;      // for every rank,
  double routing_assignment_s = 6e-9;  // and for every assignment of a row to an expert
  double sequence_s = 150e-9;          // of a step, for every sequence of the job: plan, record, scheduler
  double sequence_bytes = 800.0;       // on the host, for every sequence of the job, without its prompt
  double buffer_bytes = 360e6;         // of a rank: rows that travel and rows in experts
  double weight_bytes = 2.0;
  double context = 2048.0;  // tokens of every sequence in the KV cache
};

// Weights by how often a rank reads them, in numbers (not bytes).
struct WeightCounts {
  double attention = 0.0;  // of a layer
  double expert = 0.0;
  double beside_experts = 0.0;  // of a layer with experts: router and what all rows pass
  double dense_mlp = 0.0;       // of a layer without
  double head = 0.0;            // as many in the embedding, of which a step reads a row
  double replicated = 0.0;      // all but experts, of the model
  double total = 0.0;
};
WeightCounts weight_counts(const ModelShape& shape);

// Of one layer: bytes through the links of a rank in one direction, to ranks of its own node and of others.
struct ExchangeSeconds {
  double gathered = 0.0;  // one allgather of rows with ids, then results
  double by_ids = 0.0;    // ids, rows, results
  double least() const;
};
ExchangeSeconds exchange_seconds(const ModelShape& shape, std::int64_t num_ranks, double batch, const RoutedRows& rows,
                                 const Machine& machine, const CostFigures& figures);

// Bytes that a rank receives per layer if all rows are gathered with their ids: (ranks - 1) * batch * (4 H + 4 top_k).
double gathered_bytes(const ModelShape& shape, std::int64_t num_ranks, double batch);

// For these bytes alone.
double gathered_seconds(const ModelShape& shape, std::int64_t num_ranks, double batch, const Machine& machine);

// Of a step, summed over layers.
struct StepCost {
  double attention = 0.0;  // with KV cache, what is beside experts, dense layers and head
  double experts = 0.0;    // of the busiest rank
  double exchange = 0.0;
  double routing = 0.0;
  double schedule = 0.0;  // plan, record, scheduler
  double total() const { return attention + experts + exchange + routing + schedule; }
};
// batch: rows of each rank, one of each of its sequences.
StepCost step_cost(const ModelShape& shape, std::int64_t num_ranks, double batch, const RoutedRows& rows,
                   const Machine& machine, const CostFigures& figures);

// Requests that every rank is sent at a time, as engine/job.cpp has it: as many as run, 64 at least.
std::int64_t request_window(std::int64_t num_ranks, std::int64_t batch);

// Of a rank, in bytes.
struct RankMemory {
  double replicated = 0.0, experts = 0.0, kv = 0.0, buffers = 0.0;
  double host = 0.0;  // of all sequences of the job, where the scheduler is; not in total()
  double total() const { return replicated + experts + kv + buffers; }
};
RankMemory rank_memory(const ModelShape& shape, std::int64_t num_ranks, double batch, std::int64_t slots_per_rank,
                       const CostFigures& figures);

}  // namespace metro
