// Input rows on their way to the ranks that serve them, each row once to each rank that needs it: the half of a
// dispatch that prefill and decode share. Own assignments are grouped by the rank that serves them; in round i of n the
// rows of slice i of every group travel.
#pragma once

#include "base/digest.hpp"
#include "decoder/message_header.hpp"
#include "decoder/owned_assignments.hpp"
#include "decoder/phase_clock.hpp"
#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// Numbers the rows of one message: its assignments come in row order, and those of one row share it.
class RowNumbers {
 public:
  // Place of `row` in the message; not below the row of the last call.
  std::int64_t place_of(std::int64_t row) {
    num_rows_ += row != last_row_ ? 1 : 0;
    last_row_ = row;
    return num_rows_ - 1;
  }
  std::int64_t num_rows() const { return num_rows_; }

 private:
  std::int64_t last_row_ = -1;
  std::int64_t num_rows_ = 0;
};

class RowExchange {
 public:
  // max_rows: of one rank in a step; max_round_rows: of ExpertService. exchange and clock must outlive it.
  RowExchange(const ModelSpec& spec, DeviceExchange& exchange, std::int64_t max_rows, std::int64_t max_round_rows,
              PhaseClock& clock);

  // Groups own assignments by their serving ranks: owned_to_rank [num_rows * top_k].
  void group(std::span<const std::int32_t> owned_to_rank) { owned_.group(owned_to_rank); }
  // Of the last group(): assignments that each rank serves. [num_ranks]
  std::span<const std::int64_t> owned_by_rank() const { return owned_.num_by_rank(); }
  // Own assignments (row * top_k + k) that `rank` serves in a round, ascending.
  std::span<const std::int64_t> sent_to(std::int64_t rank, std::int64_t round, std::int64_t num_rounds) const {
    return owned_.slice(rank, round, num_rounds);
  }

  // What comes in this round, said for all ranks in ascending order. next_offset(): where the first row of the next
  // one will be, in floats from what exchange() returns.
  void begin_round();
  std::int64_t next_offset() const;
  void expect(std::int64_t num_rows);

  // Collective, after expect() for all ranks. Sends the rows of sent_to(), out of rows [num_rows, H]. Every message
  // begins with `digest`, which must be equal on all ranks; a difference throws Error(internal). Waits for the kernels.
  // Rows and result are memory of kernels.
  const float* exchange(std::int64_t moe_layer, const float* rows, std::int64_t round, std::int64_t num_rounds,
                        Digest digest);

  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows,
                                    std::int64_t max_round_rows);

 private:
  // Floats of all messages.
  std::int64_t pack(const float* rows, std::int64_t round, std::int64_t num_rounds, Digest digest);
  void expect_headers(Digest digest);

  std::int64_t hidden_;
  std::int64_t top_k_;
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  Buffer<float> send_, recv_;            // messages: header, rows [.., H]
  Mirror<std::int64_t> row_places_;      // of each row to send, in floats: among the rows
  Mirror<std::int64_t> message_places_;  // and in send_
  MessageHeaders headers_;
  OwnedAssignments owned_;
  std::vector<std::int64_t> send_bytes_, recv_bytes_;  // [num_ranks]
  std::vector<std::int64_t> rows_from_rank_;           // of the ranks expected so far
  std::int64_t expected_floats_ = 0;                   // their messages
};

}  // namespace metro
