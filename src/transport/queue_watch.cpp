#include "transport/queue_watch.hpp"

#include "kernels/queue.hpp"

#include <utility>

namespace metro {

QueueWatch::QueueWatch(Transport& transport, std::function<void(const char*)> look)
    : transport_(&transport), look_(std::move(look)), operation_(work_of_device) {
  set_waiting_check([this](bool is_over) { this->look(is_over); });
}

QueueWatch::~QueueWatch() {
  set_waiting_check({});
}

void QueueWatch::begin(const char* operation) {
  operation_ = operation;
  ++num_operations_;
}

void QueueWatch::look(bool is_over) {
  if (look_) {
    look_(operation_);
  }
  if (is_over) {
    return;
  }
  // Only what was enqueued since the last look is worth another time-out.
  const std::int64_t enqueued = num_launches() + num_operations_;
  const bool begins = enqueued != enqueued_at_look_;
  enqueued_at_look_ = enqueued;
  transport_->watch(operation_, begins);
}

}  // namespace metro
