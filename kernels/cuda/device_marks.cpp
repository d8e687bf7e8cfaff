// Marks in the stream of a device: events.
#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/device_queue.hpp"
#include "kernels/queue_marks.hpp"

#include <cstddef>
#include <vector>

namespace metro {

struct QueueMarks::Native {
  std::vector<cudaEvent_t> events;

  ~Native() {
    for (const cudaEvent_t event : events) {
      static_cast<void>(cudaEventDestroy(event));
    }
  }
};

QueueMarks::QueueMarks(std::int64_t num_marks) : native_(std::make_unique<Native>()) {
  native_->events.reserve(static_cast<std::size_t>(num_marks));
  for (std::int64_t i = 0; i < num_marks; ++i) {
    cudaEvent_t event = nullptr;
    cuda::check(cudaEventCreate(&event), "cudaEventCreate");
    native_->events.push_back(event);
  }
}
QueueMarks::~QueueMarks() = default;
QueueMarks::QueueMarks(QueueMarks&& other) noexcept = default;
QueueMarks& QueueMarks::operator=(QueueMarks&& other) noexcept = default;

void QueueMarks::set(std::int64_t mark_idx) {
  cuda::check(cudaEventRecord(native_->events.at(static_cast<std::size_t>(mark_idx)), cuda::queue()),
              "cudaEventRecord");
}

double QueueMarks::seconds_between(std::int64_t first_idx, std::int64_t second_idx) const {
  const auto event = [&](std::int64_t mark_idx) { return native_->events.at(static_cast<std::size_t>(mark_idx)); };
  float milliseconds = 0.0F;
  cuda::check(cudaEventElapsedTime(&milliseconds, event(first_idx), event(second_idx)), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace metro
