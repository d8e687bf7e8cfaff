// Waiting for a device with an end. While a QueueWatch lives, wait_for_kernels() (kernels/queue.hpp) ends the job when
// a wait for other ranks would: after the time-out, or when one of them is gone (Transport::watch).
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <functional>

namespace metro {

class QueueWatch {
 public:
  // One at a time; transport outlives it. look(operation): called while the host waits and once when the wait is over;
  // may throw, for an exchange in the queue that has failed.
  explicit QueueWatch(Transport& transport, std::function<void(const char* operation)> look = {});
  ~QueueWatch();
  QueueWatch(const QueueWatch&) = delete;
  QueueWatch& operator=(const QueueWatch&) = delete;

  // What is enqueued now (a literal): messages name it until there is another. At first work_of_device.
  void begin(const char* operation);
  const char* operation() const { return operation_; }

 private:
  void look(bool is_over);

  Transport* transport_;
  std::function<void(const char*)> look_;
  const char* operation_;
  std::int64_t num_operations_ = 0;
  std::int64_t enqueued_at_look_ = -1;
};

}  // namespace metro
