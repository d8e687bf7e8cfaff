// Expert rows served here, and their way back: this rank computes the rows that routing sent to its experts and returns
// each unweighted result row to the rank that owns the token.
//
// Words: an *assignment* is one (token, k-th choice). A rank *serves* assignments of all ranks and *owns* those of its
// own tokens. Between a pair of ranks assignments keep the row order of the owner, so neither side sends an index.
// When one rank would serve more than it has memory for, all ranks go through the same number of rounds
// (owned_assignments.hpp).
#pragma once

#include "base/digest.hpp"
#include "decoder/expert_store.hpp"
#include "decoder/message_header.hpp"
#include "decoder/owned_assignments.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/row_batch.hpp"
#include "kernels/buffer.hpp"
#include "model/model_spec.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

struct ServedAssignment {
  std::int64_t row_offset = 0;  // of the input row, in floats from the base pointer given to serve_round()
  std::int32_t expert = 0;
};

class ExpertService {
 public:
  // What it allocates for given limits, in floats; the constructor and the memory plan both follow it.
  struct Sizes {
    std::int64_t round_rows = 0;  // assignments served in one round
    std::int64_t inputs = 0, hidden = 0, outputs = 0, send = 0, results = 0;
    std::int64_t num_bytes() const {
      return (inputs + hidden + outputs + send + results) * static_cast<std::int64_t>(sizeof(float));
    }
  };
  // limits.exchange_bytes bounds the rows served at a time (inputs, hidden, outputs, send and, in prefill, the received
  // rows), plus one row per rank; results hold all own assignments of a step.
  static Sizes sizes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits);

  // `store`, `transport` and `clock` must outlive it.
  ExpertService(const ModelSpec& spec, ExpertStore& store, Transport& transport, const DecoderLimits& limits,
                PhaseClock& clock);

  // Rounds needed when the busiest rank serves `most_served` assignments; at least 1. Same on all ranks.
  std::int64_t num_rounds(std::int64_t most_served) const;
  // Most assignments served in one round.
  std::int64_t max_round_rows() const { return max_round_rows_; }

  // Forgets the results of the step before. owned_by_rank [num_ranks]: own assignments served by each rank.
  void begin(std::span<const std::int64_t> owned_by_rank, std::int64_t num_rounds);

  // Collective, once per round. `served` in order of owner rank, served_of_rank [num_ranks] of each in this round;
  // `base` + row_offset is the input row [H]. `digest` must be equal on all ranks (routing of this layer and step):
  // a difference throws Error(internal) that names layer and ranks.
  void serve_round(std::int64_t moe_layer, std::int64_t round, std::span<const ServedAssignment> served,
                   std::span<const std::int64_t> served_of_rank, const float* base, Digest digest);

  // After all rounds: where the result rows [H] of own assignments are. owned_to_rank [num_owned] serving rank of each
  // own assignment in row order -> offsets [num_owned] in floats from results().
  void locate(std::span<const std::int32_t> owned_to_rank, std::span<std::int64_t> offsets);
  const float* results() const { return results_.data(); }

  std::int64_t num_bytes() const;

 private:
  void compute(std::int64_t moe_layer, std::span<const ServedAssignment> served, const float* base);
  void pack_results(std::span<const std::int64_t> served_of_rank, Digest digest);
  void drop_headers(std::int64_t round);
  void check_headers(std::int64_t moe_layer, std::int64_t round, const float* received, Digest digest) const;

  std::int64_t hidden_size_;
  ExpertStore* store_;
  Transport* transport_;
  PhaseClock* clock_;
  std::int64_t max_round_rows_;
  std::int64_t num_rounds_ = 1;
  std::vector<std::int64_t> owned_by_rank_;   // [num_ranks]
  std::int64_t rows_before_ = 0;              // rows of results_ from rounds before the last one
  Buffer<float> inputs_, hidden_, outputs_;   // [max_round_rows + num_ranks, H | F | H], rows grouped by expert
  Buffer<float> send_;                        // result messages: header, rows
  Buffer<float> results_;                     // received rows; those of the last round in their messages
  std::vector<std::int64_t> first_row_;       // [num_experts + 1]
  std::vector<std::int64_t> grouped_row_;     // row of each served assignment after grouping
  std::vector<std::int64_t> gather_offsets_;  // of each grouped row, then of each row to send
  std::vector<ExpertWork> work_;
  std::vector<std::int64_t> send_bytes_, recv_bytes_;  // [num_ranks]
  OwnedAssignments owned_;                             // of locate()
};

}  // namespace metro
