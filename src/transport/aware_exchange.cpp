// The exchange of memory of devices by a CUDA-aware MPI: from device to device, while the host waits. By sends and
// receives only: Open MPI takes no memory of devices in collectives that do not block, and those that block have no
// time-out. What a rank sends to itself is copied by the queue.
#include "base/integers.hpp"
#include "kernels/queue.hpp"
#include "transport/device_exchange.hpp"
#include "transport/preconditions.hpp"
#include "transport/queue_watch.hpp"

#include <vector>

namespace metro {

namespace {

class AwareExchange final : public DeviceExchange {
 public:
  explicit AwareExchange(Transport& transport)
      : DeviceExchange(transport), watch_(transport), to_ranks_(at(size())), from_ranks_(at(size())) {}

  std::string name() const override { return transport().name() + ", device memory"; }
  bool uses_host_memory() const override { return false; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_gather_sizes(transport(), send, recv, recv_bytes);
    if (recv.empty()) {
      return;  // every rank knows that
    }
    for (auto& message : to_ranks_) {
      message = send;
    }
    split(recv, recv_bytes, from_ranks_);
    exchange("all-gather");
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_to_all_sizes(transport(), send, send_bytes, recv, recv_bytes);
    split(send, send_bytes, to_ranks_);
    split(recv, recv_bytes, from_ranks_);
    exchange("all-to-all");
  }

 private:
  // The messages that lie in `data` one behind the other.
  template <class T>
  static void split(std::span<T> data, std::span<const std::int64_t> bytes, std::vector<std::span<T>>& messages) {
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
      messages[rank] = data.subspan(at(offset), at(bytes[rank]));
      offset += bytes[rank];
    }
  }

  void exchange(const char* operation) {
    // MPI does not know the queue: what it sends must be there, and nothing may still read what it overwrites.
    wait_for_kernels();
    const std::span<const std::byte> own = to_ranks_[at(rank())];
    queue_copy(from_ranks_[at(rank())].data(), own.data(), std::ssize(own));
    transport().exchange_messages(to_ranks_, from_ranks_, operation);
  }

  QueueWatch watch_;
  std::vector<std::span<const std::byte>> to_ranks_;  // [size], like the next: kept so that nothing is allocated
  std::vector<std::span<std::byte>> from_ranks_;
};

}  // namespace

std::unique_ptr<DeviceExchange> make_aware_exchange(Transport& transport) {
  return std::make_unique<AwareExchange>(transport);
}

}  // namespace metro
