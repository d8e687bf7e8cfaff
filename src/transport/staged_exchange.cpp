// The exchange of memory of kernels over any transport: through pinned memory of the host where kernels have memory of
// their own.
#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/queue.hpp"
#include "transport/device_exchange.hpp"
#include "transport/preconditions.hpp"
#include "transport/queue_watch.hpp"

#include <algorithm>

namespace metro {

namespace {

// Pinned memory that grows to the largest message so far: nothing is allocated once a run has seen its largest step.
class Staging {
 public:
  explicit Staging(const char* label) : label_(label) {}

  // Its content is lost when it grows, so nothing in the queue may use it.
  std::span<std::byte> of_size(std::size_t num_bytes) {
    const auto wanted = static_cast<std::int64_t>(num_bytes);
    if (wanted > num_bytes_) {
      num_bytes_ = std::max(wanted, 2 * num_bytes_);
      buffer_ = PinnedBuffer();  // before the larger one is there
      buffer_ = PinnedBuffer(label_, num_bytes_);
    }
    return {buffer_.data(), num_bytes};
  }

 private:
  const char* label_;
  PinnedBuffer buffer_;
  std::int64_t num_bytes_ = 0;
};

class StagedExchange final : public DeviceExchange {
 public:
  explicit StagedExchange(Transport& transport) : DeviceExchange(transport), watch_(transport) {}
  // What was received may still be on its way to the kernels.
  ~StagedExchange() override {
    try {
      wait_for_kernels();
    } catch (const Error&) {
      return;  // it failed before, and has been reported
    }
  }

  std::string name() const override { return transport().name() + ", staged"; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_gather_sizes(transport(), send, recv, recv_bytes);
    const std::span<std::byte> received = bring_to_host(send, recv.size());
    transport().all_gather(sent(send.size()), received, recv_bytes);
    bring_to_kernels(received, recv);
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_to_all_sizes(transport(), send, send_bytes, recv, recv_bytes);
    const std::span<std::byte> received = bring_to_host(send, recv.size());
    transport().all_to_all(sent(send.size()), send_bytes, received, recv_bytes);
    bring_to_kernels(received, recv);
  }

 private:
  // Returns where the transport is to write. Before that, the last exchange must have left that memory.
  std::span<std::byte> bring_to_host(std::span<const std::byte> send, std::size_t recv_size) {
    wait_for_kernels();
    const std::span<std::byte> staged = send_.of_size(send.size());
    if (!send.empty()) {
      queue_copy_to_host(staged.data(), send.data(), std::ssize(send));
      wait_for_kernels();
    }
    return recv_.of_size(recv_size);
  }

  std::span<const std::byte> sent(std::size_t num_bytes) { return send_.of_size(num_bytes); }

  static void bring_to_kernels(std::span<const std::byte> staged, std::span<std::byte> recv) {
    if (!recv.empty()) {
      queue_copy_to_kernels(recv.data(), staged.data(), std::ssize(recv));
    }
  }

  Staging send_{"messages to send, on the host"};
  Staging recv_{"messages received, on the host"};
  QueueWatch watch_;
};

}  // namespace

std::unique_ptr<DeviceExchange> make_device_exchange(Transport& transport) {
  if (kernels_use_host_memory()) {
    return std::make_unique<HostExchange>(transport);
  }
  return std::make_unique<StagedExchange>(transport);
}

}  // namespace metro
