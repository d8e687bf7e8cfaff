// Collectives of NCCL on the queue of the kernels. Messages of equal length are one all-gather; of different lengths
// each is a broadcast of its own, which NCCL joins into one launch. An all-to-all is a group of sends and receives.
// Messages without bytes are left out by both sides, and a rank copies what it sends to itself.
#include "transport/nccl_exchange.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/queue.hpp"
#include "transport/nccl_communicator.hpp"
#include "transport/preconditions.hpp"
#include "transport/queue_watch.hpp"

#include <algorithm>
#include <numeric>

namespace metro {

namespace {

class NcclExchange final : public DeviceExchange {
 public:
  NcclExchange(Transport& transport, double timeout_s)
      : DeviceExchange(transport),
        communicator_(transport, timeout_s),
        watch_(transport, [this](const char* operation) { communicator_.look(operation); }) {}

  std::string name() const override { return "nccl"; }
  bool uses_host_memory() const override { return false; }
  bool may_be_recorded() const override { return true; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_gather_sizes(transport(), send, recv, recv_bytes);
    if (recv.empty()) {
      return;  // every rank knows that
    }
    watch_.begin("all-gather by NCCL");
    transport().count_sent(std::ssize(send) * (size() - 1));
    if (size() == 1) {
      queue_copy(recv.data(), send.data(), std::ssize(send));
    } else if (std::ranges::count(recv_bytes, recv_bytes[0]) == size()) {
      communicator_.finish(
          ncclAllGather(send.data(), recv.data(), send.size(), ncclUint8, communicator_.native(), stream()),
          watch_.operation());
    } else {
      in_group([&] { return start_broadcasts(send, recv, recv_bytes); });
    }
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_to_all_sizes(transport(), send, send_bytes, recv, recv_bytes);
    const std::int64_t to_itself = send_bytes[at(rank())];
    watch_.begin("all-to-all by NCCL");
    transport().count_sent(std::ssize(send) - to_itself);
    if (to_itself > 0) {
      queue_copy(recv.data() + offset_of(rank(), recv_bytes), send.data() + offset_of(rank(), send_bytes), to_itself);
    }
    if (std::ssize(send) + std::ssize(recv) > 2 * to_itself) {
      in_group([&] { return start_messages(send, send_bytes, recv, recv_bytes); });
    }
  }

 private:
  static cudaStream_t stream() { return static_cast<cudaStream_t>(native_queue()); }

  static std::int64_t offset_of(std::int64_t rank, std::span<const std::int64_t> bytes) {
    return std::accumulate(bytes.begin(), bytes.begin() + rank, std::int64_t{0});
  }

  // calls() returns its first result that is not a success. The group is closed in any case.
  template <class F>
  void in_group(const F& calls) {
    static_cast<void>(communicator_.native());  // throws if it has failed: before there is a group to close
    communicator_.finish(ncclGroupStart(), watch_.operation());
    const ncclResult_t inside = calls();
    const ncclResult_t end = ncclGroupEnd();
    communicator_.finish(inside == ncclSuccess ? end : inside, watch_.operation());
  }

  ncclResult_t start_broadcasts(std::span<const std::byte> send, std::span<std::byte> recv,
                                std::span<const std::int64_t> recv_bytes) {
    ncclResult_t result = ncclSuccess;
    std::int64_t offset = 0;
    for (std::int64_t root = 0; root < size() && !has_failed(result); ++root) {
      const std::int64_t bytes = recv_bytes[at(root)];
      if (bytes > 0) {
        result = ncclBroadcast(send.data(), recv.data() + offset, at(bytes), ncclUint8, static_cast<int>(root),
                               communicator_.native(), stream());
      }
      offset += bytes;
    }
    return result;
  }

  ncclResult_t start_messages(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                              std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes) {
    ncclResult_t result = ncclSuccess;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::int64_t peer = 0; peer < size() && !has_failed(result); ++peer) {
      const int to = static_cast<int>(peer);
      if (peer != rank() && send_bytes[at(peer)] > 0) {
        result =
            ncclSend(send.data() + sent, at(send_bytes[at(peer)]), ncclUint8, to, communicator_.native(), stream());
      }
      if (peer != rank() && recv_bytes[at(peer)] > 0 && !has_failed(result)) {
        result =
            ncclRecv(recv.data() + received, at(recv_bytes[at(peer)]), ncclUint8, to, communicator_.native(), stream());
      }
      sent += send_bytes[at(peer)];
      received += recv_bytes[at(peer)];
    }
    return result;
  }

  // A call within a group of a communicator that does not block may say that others are in progress.
  static bool has_failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

  NcclCommunicator communicator_;
  QueueWatch watch_;  // ends first: it looks at the communicator
};

}  // namespace

bool has_nccl() {
  return true;
}

std::string nccl_software() {
  return nccl_version_text();
}

std::unique_ptr<DeviceExchange> make_nccl_exchange(Transport& transport, double timeout_s) {
  return std::make_unique<NcclExchange>(transport, timeout_s);
}

}  // namespace metro
