#include "trace/batches.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace metro {

TraceBatches::TraceBatches(std::span<const RequestRows> requests, std::int64_t batch_size, std::int64_t num_ranks,
                           std::uint64_t seed)
    : requests_(requests), random_(seed), is_running_(requests.size(), false), num_sequences_(at(num_ranks), 0) {
  METRO_REQUIRE(batch_size > 0 && num_ranks > 0, fmt::format("batch {} on {} ranks", batch_size, num_ranks));
  if (std::ssize(requests) < batch_size) {
    throw Error(ExitCode::usage, fmt::format("a batch of {} needs as many different requests; the trace offers {}",
                                             batch_size, requests.size()));
  }
  sequences_.resize(at(batch_size));
  for (Sequence& sequence : sequences_) {
    begin_sequence(sequence);
    sequence.position = static_cast<std::size_t>(random_.below(requests_[sequence.request].rows.size()));
  }
}

TraceBatch TraceBatches::batch() const {
  std::vector<const Sequence*> order;
  for (const Sequence& sequence : sequences_) {
    order.push_back(&sequence);
  }
  std::sort(order.begin(), order.end(), [](const Sequence* a, const Sequence* b) {
    return std::tie(a->rank, a->arrival) < std::tie(b->rank, b->arrival);
  });
  TraceBatch batch;
  for (const Sequence* sequence : order) {
    batch.rows.push_back(requests_[sequence->request].rows[sequence->position]);
    batch.row_to_rank.push_back(sequence->rank);
  }
  return batch;
}

void TraceBatches::advance(std::int64_t num_steps) {
  for (std::int64_t step = 0; step < num_steps; ++step) {
    advance_by_one();
  }
}

void TraceBatches::advance_by_one() {
  std::vector<Sequence*> ended;
  for (Sequence& sequence : sequences_) {
    if (++sequence.position == requests_[sequence.request].rows.size()) {
      ended.push_back(&sequence);
      is_running_[sequence.request] = false;
      --num_sequences_[at(sequence.rank)];
    }
  }
  // All that have ended leave before the first new one chooses its rank.
  for (Sequence* sequence : ended) {
    begin_sequence(*sequence);
  }
}

void TraceBatches::begin_sequence(Sequence& sequence) {
  sequence = {next_request(), 0, emptiest_rank(), num_arrivals_++};
  is_running_[sequence.request] = true;
  ++num_sequences_[at(sequence.rank)];
}

std::size_t TraceBatches::next_request() {
  while (true) {
    if (queue_.empty()) {
      queue_.resize(requests_.size());
      std::iota(queue_.begin(), queue_.end(), std::size_t{0});
      random_.shuffle(queue_);
    }
    const std::size_t next = queue_.back();
    queue_.pop_back();
    if (!is_running_[next]) {
      return next;
    }
  }
}

std::int32_t TraceBatches::emptiest_rank() const {
  return static_cast<std::int32_t>(std::min_element(num_sequences_.begin(), num_sequences_.end()) -
                                   num_sequences_.begin());
}

}  // namespace metro
