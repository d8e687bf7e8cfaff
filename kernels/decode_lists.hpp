// What a decode step does between its exchanges apart from computing, by the lists of the routing step (routing.hpp)
// and without the host knowing them: rows into records that all ranks gather, results into messages to the owners of
// the rows, checks of what came, and the weighted sum. Every rank brings the same number P of rows; those it does not
// have are padding. All arrays are memory of kernels; each function is one kernel, the same for whatever the lists
// hold.
#pragma once

#include "kernels/routing.hpp"

#include <cstdint>

namespace metro {

// What is gathered of a row: its H floats, then the ids of its experts as 32-bit integers.
struct RecordShape {
  std::int64_t hidden_size = 0;
  std::int64_t top_k = 0;

  std::int64_t num_floats() const { return hidden_size + top_k; }
};

// rows [num_rows, H], expert_ids [num_rows, top_k] -> records [num_rows, H + top_k]. A row with positions[row] < 0 is
// padding: its ids become -1, which nobody serves.
void pack_records(const float* rows, const std::int32_t* expert_ids, const std::int32_t* positions,
                  std::int64_t num_rows, const RecordShape& shape, float* records);

// The ids of records [num_records, H + top_k] -> expert_ids [num_records, top_k].
void unpack_ids(const float* records, std::int64_t num_records, const RecordShape& shape, std::int32_t* expert_ids);

// How the messages with results lie in the buffers to send from and to receive into: for every rank a header of 16
// bytes, the checksum of the routing and the number of results as 64-bit integers, then the results, `width` floats
// each. Message after message without a gap, or each with room for `capacity` results, so that where it begins does not
// depend on the routing.
struct ResultMessages {
  static constexpr std::int64_t header_floats = 4;

  std::int64_t num_ranks = 1;
  std::int64_t width = 0;
  std::int64_t capacity = 0;  // 0: without a gap

  // Of all messages together, at most max_results results.
  std::int64_t num_floats(std::int64_t max_results) const {
    const std::int64_t most = capacity > 0 ? num_ranks * capacity : max_results;
    return num_ranks * header_floats + most * width;
  }
};

// results [work_begin.back(), width] in the order of routing.work -> messages to the owners of the rows. At most
// max_work results. Results beyond the capacity of a message are left out: its receiver refuses it.
void pack_results(const RoutingResult& routing, const ResultMessages& messages, std::int64_t max_work,
                  const float* results, float* send);

// A message that was not what its receiver expected.
struct HeaderMismatch {
  std::int32_t is_set = 0;
  std::int32_t moe_layer = 0;
  std::int32_t sender = 0;
  std::int32_t over_capacity = 0;  // 1: the message has no room for what was expected
  std::uint64_t own_checksum = 0;
  std::uint64_t checksum = 0;
  std::int64_t expected_count = 0;
  std::int64_t count = 0;
};

// Compares the headers of the received messages with the own routing. `mismatch` [1] takes the first that differs, that
// of the lowest rank in the first layer, and keeps it: is_set = 0 before a step, to be read at its end.
void check_headers(const RoutingResult& routing, const ResultMessages& messages, std::int64_t moe_layer,
                   const float* received, HeaderMismatch* mismatch);

// residual[r, :] += sum over k of weights[r, k] * result of assignment (r, k), as combine() and add() do: by fma in
// ascending k from 0, then one addition. weights [num_rows, top_k], residual [num_rows, width], received: the messages.
// Rows that nobody served stay as they are.
void combine_results(const RoutingResult& routing, const ResultMessages& messages, const float* received,
                     const float* weights, std::int64_t num_rows, std::int64_t top_k, float* residual);

}  // namespace metro
