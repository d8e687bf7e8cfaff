// This rank's rows of one step, as the forward pass sees them, and how many rows every other rank has.
#pragma once

#include "decoder/exchange_mode.hpp"

#include <cstdint>
#include <numeric>
#include <vector>

namespace metro {

struct RowBatch {
  bool decode = true;                      // else prefill
  std::int64_t step = 0;                   // number of the step, the same on all ranks
  std::vector<std::int64_t> rows_of_rank;  // [num_ranks], rows per rank in this step
  std::vector<std::int32_t> token_ids;     // [rows of this rank]
  std::vector<std::int32_t> positions;     // [rows of this rank]
  std::vector<std::int32_t> sequences;     // [rows of this rank], row of block_tables
  // [rows of this rank] whether a position lies behind the prompt, also where it is computed once more; empty: so do
  // all of a decode step, and none of a prefill step
  std::vector<std::uint8_t> is_generated;
  // [rows of this rank] places in the RoPE table: position + set * num_positions; empty: the positions
  std::vector<std::int32_t> rope_rows;
  std::vector<std::int32_t> block_tables;  // [sequences of this rank, max_blocks], padded with 0
  std::int64_t max_blocks = 0;
  std::vector<std::int32_t> sampled_rows;  // rows whose logits are wanted, ascending

  std::int64_t num_rows() const { return static_cast<std::int64_t>(token_ids.size()); }
  std::int64_t num_rows_of_all() const {
    return std::accumulate(rows_of_rank.begin(), rows_of_rank.end(), std::int64_t{0});
  }
};

// How decode runs where kernels have memory of their own; the same on all ranks, and of no effect on results.
struct ListedSettings {
  std::int64_t most_rows = 0;   // in steps of up to so many rows per rank the device routes and lists its work itself
  bool fixed_messages = false;  // then results travel in messages of one length, if the batch is small enough
  bool graphs = false;          // and kernels between exchanges are launched as graphs (StepGraphs)
};

// What the forward pass must be able to hold, the same on all ranks.
struct DecoderLimits {
  std::int64_t max_rows = 1;          // rows of one rank in one step
  std::int64_t max_decode_rows = 1;   // rows of one rank in a decode step, and sequences in any; at most max_rows
  std::int64_t max_sampled_rows = 1;  // rows of one rank whose logits are wanted
  std::int64_t max_context = 1;       // positions of a sequence
  std::int64_t kv_blocks = 1;         // KV blocks of this rank
  std::int64_t block_tokens = 16;
  std::int64_t exchange_bytes = 0;  // bound on what a rank holds of expert rows at a time (ExpertService)
  bool movable_experts = false;     // placements may change between steps (ExpertMover)
  ExchangeSettings exchange = {};   // how decode rows travel (DecodeDispatch)
  ListedSettings listed = {};
  bool grouped_experts = false;  // experts of prefill steps by GroupedExperts, whose results are not reproducible
};

}  // namespace metro
