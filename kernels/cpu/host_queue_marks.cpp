// Marks where kernels run on the host: what was enqueued is over.
#include "kernels/queue_marks.hpp"

#include <chrono>

namespace metro {

struct QueueMarks::Native {
  std::vector<std::chrono::steady_clock::time_point> times;
};

QueueMarks::QueueMarks() : native_(std::make_unique<Native>()) {}
QueueMarks::~QueueMarks() = default;
QueueMarks::QueueMarks(QueueMarks&& other) noexcept = default;
QueueMarks& QueueMarks::operator=(QueueMarks&& other) noexcept = default;

void QueueMarks::add() {
  native_->times.push_back(std::chrono::steady_clock::now());
  ++num_marks_;
}

void QueueMarks::take(std::vector<double>& seconds) {
  seconds.clear();
  auto& times = native_->times;
  for (std::size_t i = 1; i < times.size(); ++i) {
    seconds.push_back(std::chrono::duration<double>(times[i] - times[i - 1]).count());
  }
  if (times.size() > 1) {
    times.erase(times.begin(), times.end() - 1);
    num_marks_ = 1;
  }
}

}  // namespace metro
