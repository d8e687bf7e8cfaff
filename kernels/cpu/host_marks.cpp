// Marks where kernels run on the host: the queue has come to its end whenever one asks.
#include "kernels/queue_marks.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace metro {

struct QueueMarks::Native {
  std::vector<std::chrono::steady_clock::time_point> times;
};

QueueMarks::QueueMarks(std::int64_t num_marks)
    : native_(std::make_unique<Native>(
          Native{std::vector<std::chrono::steady_clock::time_point>(static_cast<std::size_t>(num_marks))})) {}
QueueMarks::~QueueMarks() = default;
QueueMarks::QueueMarks(QueueMarks&& other) noexcept = default;
QueueMarks& QueueMarks::operator=(QueueMarks&& other) noexcept = default;

void QueueMarks::set(std::int64_t mark_idx) {
  native_->times.at(static_cast<std::size_t>(mark_idx)) = std::chrono::steady_clock::now();
}

double QueueMarks::seconds_between(std::int64_t first_idx, std::int64_t second_idx) const {
  const auto time = [&](std::int64_t mark_idx) { return native_->times.at(static_cast<std::size_t>(mark_idx)); };
  return std::chrono::duration<double>(time(second_idx) - time(first_idx)).count();
}

}  // namespace metro
