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
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "transport/device_exchange.hpp"

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
  // What it allocates for given limits; the constructor and the memory plan both follow it.
  struct Sizes {
    std::int64_t num_ranks = 1;
    std::int64_t round_rows = 0;                                              // assignments served in one round
    std::int64_t inputs = 0, hidden = 0, outputs = 0, send = 0, results = 0;  // in floats
    std::int64_t places = 0;                                                  // rows that are moved at a time
    std::int64_t num_bytes() const;
  };
  // limits.exchange_bytes bounds the rows served at a time (inputs, hidden, outputs, send and, in prefill, the received
  // rows), plus one row per rank; results hold all own assignments of a step.
  static Sizes sizes(const ModelSpec& spec, std::int64_t num_ranks, const DecoderLimits& limits);

  // `store`, `exchange` and `clock` must outlive it.
  ExpertService(const ModelSpec& spec, ExpertStore& store, DeviceExchange& exchange, const DecoderLimits& limits,
                PhaseClock& clock);

  // Rounds needed when the busiest rank serves `most_served` assignments; at least 1. Same on all ranks.
  std::int64_t num_rounds(std::int64_t most_served) const;
  // Most assignments served in one round.
  std::int64_t max_round_rows() const { return max_round_rows_; }

  // Forgets the results of the step before. owned_by_rank [num_ranks]: own assignments served by each rank.
  void begin(std::span<const std::int64_t> owned_by_rank, std::int64_t num_rounds);

  // Collective, once per round. `served` in order of owner rank, served_of_rank [num_ranks] of each in this round;
  // `base` + row_offset is the input row [H], memory of kernels. `digest` must be equal on all ranks (routing of this
  // layer and step): a difference throws Error(internal) that names layer and ranks. Waits for the kernels.
  void serve_round(std::int64_t moe_layer, std::int64_t round, std::span<const ServedAssignment> served,
                   std::span<const std::int64_t> served_of_rank, const float* base, Digest digest);

  // After all rounds: where the result rows [H] of own assignments are. owned_to_rank [num_owned] serving rank of each
  // own assignment in row order -> offsets [num_owned] in floats from results(), which is memory of kernels.
  void locate(std::span<const std::int32_t> owned_to_rank, std::span<std::int64_t> offsets);
  const float* results() const { return results_.data(); }

  // Its buffers, for ListedDecode, which has one round only and does not run at the same time. Memory of kernels.
  struct Scratch {
    float* hidden = nullptr;   // [max_round_rows, F]
    float* outputs = nullptr;  // [max_round_rows, H]
    std::span<float> send, results;
  };
  Scratch scratch() const {
    return {hidden_.data(),
            outputs_.data(),
            {send_.data(), static_cast<std::size_t>(send_.size())},
            {results_.data(), static_cast<std::size_t>(results_.size())}};
  }

  std::int64_t num_bytes() const;

 private:
  void compute(std::int64_t moe_layer, std::span<const ServedAssignment> served, const float* base);
  // Both return the floats of all messages.
  std::int64_t pack_results(std::span<const std::int64_t> served_of_rank, Digest digest);
  std::int64_t expect_results(std::int64_t round, Digest digest);
  void drop_headers(std::int64_t round);
  void move_results(std::int64_t to, std::int64_t from, std::int64_t num_floats);

  std::int64_t hidden_size_;
  ExpertStore* store_;
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  std::int64_t max_round_rows_;
  std::int64_t num_rounds_ = 1;
  std::vector<std::int64_t> owned_by_rank_;  // [num_ranks]
  std::int64_t rows_before_ = 0;             // rows of results_ from rounds before the last one
  Buffer<float> inputs_, hidden_, outputs_;  // [max_round_rows + num_ranks, H | F | H], rows grouped by expert
  Buffer<float> send_;                       // result messages: header, rows
  Buffer<float> results_;                    // received rows; those of the last round in their messages
  MessageHeaders headers_;                   // of the result messages
  std::vector<std::int64_t> first_row_;      // [num_experts + 1]
  std::vector<std::int64_t> grouped_row_;    // row of each served assignment after grouping
  Mirror<std::int64_t> input_places_;        // of each grouped row, from the base pointer
  Mirror<std::int64_t> output_places_;       // of each row to send, in outputs_
  Mirror<std::int64_t> message_places_;      // and in send_
  std::vector<ExpertWork> work_;
  std::vector<std::int64_t> send_bytes_, recv_bytes_;  // [num_ranks]
  OwnedAssignments owned_;                             // of locate()
};

}  // namespace metro
