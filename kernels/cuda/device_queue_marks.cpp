// Marks in the stream of a device: events, which are kept for later marks.
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/device_queue.hpp"
#include "kernels/queue.hpp"
#include "kernels/queue_marks.hpp"

#include <cstddef>
#include <utility>

namespace metro {

struct QueueMarks::Native {
  std::vector<cudaEvent_t> events;

  Native() = default;
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;
  ~Native() {
    for (const cudaEvent_t event : events) {
      static_cast<void>(cudaEventDestroy(event));  // fails only where the device has failed, which has been reported
    }
  }
};

QueueMarks::QueueMarks() : native_(std::make_unique<Native>()) {}
QueueMarks::~QueueMarks() = default;
QueueMarks::QueueMarks(QueueMarks&& other) noexcept = default;
QueueMarks& QueueMarks::operator=(QueueMarks&& other) noexcept = default;

void QueueMarks::add() {
  std::vector<cudaEvent_t>& events = native_->events;
  if (num_marks_ == static_cast<std::int64_t>(events.size())) {
    events.reserve(events.size() + 1);  // or an event would be lost without memory for its name
    cudaEvent_t event = nullptr;
    cuda::check(cudaEventCreate(&event), "cudaEventCreate");
    events.push_back(event);
  }
  cuda::check(cudaEventRecord(events[static_cast<std::size_t>(num_marks_)], cuda::queue()), "cudaEventRecord");
  ++num_marks_;
}

void QueueMarks::take(std::vector<double>& seconds) {
  seconds.clear();
  if (num_marks_ < 2) {
    return;
  }
  wait_for_kernels();
  std::vector<cudaEvent_t>& events = native_->events;
  const auto last = static_cast<std::size_t>(num_marks_) - 1;
  for (std::size_t i = 0; i < last; ++i) {
    float milliseconds = 0.0F;
    cuda::check(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]), "cudaEventElapsedTime");
    seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  std::swap(events.front(), events[last]);
  num_marks_ = 1;
}

}  // namespace metro
