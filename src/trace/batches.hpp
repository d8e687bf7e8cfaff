// Decode batches as a server would form them from the requests of a trace: a fixed number of sequences of different
// requests, each at its own position, all of which advance by one token per step.
#pragma once

#include "trace/random_numbers.hpp"
#include "trace/requests_of_trace.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

// The token rows of one step: rank by rank, within a rank in the order in which its sequences came.
struct TraceBatch {
  std::vector<std::int64_t> rows;         // [batch_size] token rows of the trace
  std::vector<std::int32_t> row_to_rank;  // [batch_size] ascending
};

// At first every sequence is somewhere within its request, as in a server that has run for long. A sequence that has
// ended gives its place to the next request, in an order that is shuffled anew whenever all had their turn. A new
// sequence goes to the rank with the fewest sequences (tie: lowest rank). Which rows a batch has does not depend on the
// number of ranks. Equal arguments give equal batches on every platform.
class TraceBatches {
 public:
  // Keeps a reference to `requests`, which must outlive it. Throws Error(usage) if there are fewer than batch_size.
  TraceBatches(std::span<const RequestRows> requests, std::int64_t batch_size, std::int64_t num_ranks,
               std::uint64_t seed);

  // The rows of this step.
  TraceBatch batch() const;
  // Goes on by this many steps.
  void advance(std::int64_t num_steps);

 private:
  struct Sequence {
    std::size_t request;   // index into requests_
    std::size_t position;  // index into its rows
    std::int32_t rank;
    std::int64_t arrival;
  };

  void begin_sequence(Sequence& sequence);
  std::size_t next_request();
  std::int32_t emptiest_rank() const;
  void advance_by_one();

  std::span<const RequestRows> requests_;
  RandomNumbers random_;
  std::vector<Sequence> sequences_;          // [batch_size]
  std::vector<std::size_t> queue_;           // requests to come, the next one last
  std::vector<bool> is_running_;             // [requests]
  std::vector<std::int64_t> num_sequences_;  // [num_ranks]
  std::int64_t num_arrivals_ = 0;
};

}  // namespace metro
