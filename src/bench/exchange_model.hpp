// Decode exchanges on paper: what either mode costs on a link of given latency and bandwidth. Every collective costs a
// latency, and then its bytes through the link of a rank (docs/exchange.md has the formulas and what they leave out).
// Rows are those of all ranks, evenly spread; hidden states and ids have the sizes that this program sends.
#pragma once

#include "bench/model_shapes.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace metro {

struct Link {
  std::string name;
  double latency_s = 0.0;           // of a collective
  double bytes_per_s = 0.0;         // of a rank, in one direction
  double memory_bytes_per_s = 0.0;  // in which a rank reads weights
  std::vector<std::int64_t> ranks;  // for how many it is shown
};

// Of a layer: hidden, top_k, num_experts and expert_width count.
struct ExchangeShape {
  std::int64_t hidden = 0, top_k = 0, num_experts = 0, expert_width = 0;
};
ExchangeShape exchange_shape_of(const ModelShape& model);

// Ranks other than its owner that serve some of a row's top_k distinct experts, expected, when all experts are equally
// likely and every rank serves num_experts / num_ranks of them: (ranks - 1) * (1 - q), where a rank serves none with
// probability q = product over i < top_k of (E - E / ranks - i) / (E - i), at least 0.
double expected_other_ranks(const ExchangeShape& shape, std::int64_t num_ranks);

// Bytes through the link of a rank in one direction. allgather: rows * (H * 4 + top_k * 4) * (ranks - 1) / ranks.
double allgather_bytes(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows);
// ids of 2 bytes (4 with more than 65536 experts) to all, a header of 16 bytes to each other rank, and the rows.
double ids_bytes(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows);

// One collective, and two. No time on one rank.
double allgather_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link);
double ids_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link);

// Rows from which ids_then_alltoall takes no longer than allgather; infinity: never.
double crossover_rows(const ExchangeShape& shape, std::int64_t num_ranks, const Link& link);

// Experts in use, expected: E * (1 - (1 - top_k / E)^rows).
double expected_active(const ExchangeShape& shape, double num_rows);
// For a rank to read its share of them, in bf16, when routing balances them perfectly.
double weight_seconds(const ExchangeShape& shape, std::int64_t num_ranks, double num_rows, const Link& link);

// Whole numbers of rows for which an allgather takes at most `share` of weight_seconds: a range, as too few rows are
// all latency and too many all bytes. {0, 0}: none. Numbers above 2^40 count as that.
struct RowRange {
  std::int64_t first = 0, last = 0;
};
RowRange rows_of_cheap_allgather(const ExchangeShape& shape, std::int64_t num_ranks, const Link& link, double share);

}  // namespace metro
