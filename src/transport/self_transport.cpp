// The transport of a job of one rank: every message is a copy, or nothing.
#include "transport/preconditions.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace metro {

namespace {

class SelfMemory final : public NodeMemory {
 public:
  explicit SelfMemory(std::int64_t num_bytes)
      : bytes_(new (page) std::byte[static_cast<std::size_t>(num_bytes)], static_cast<std::size_t>(num_bytes)) {}
  ~SelfMemory() override { ::operator delete[](bytes_.data(), page); }
  SelfMemory(const SelfMemory&) = delete;
  SelfMemory& operator=(const SelfMemory&) = delete;

  std::span<std::byte> bytes() const override { return bytes_; }
  std::int64_t rank_on_node() const override { return 0; }
  std::int64_t num_ranks_on_node() const override { return 1; }
  void publish() override {}

 private:
  static constexpr std::align_val_t page{4096};
  std::span<std::byte> bytes_;
};

class SelfTransport final : public Transport {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 1; }
  std::string name() const override { return "self"; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_gather_sizes(*this, send, recv, recv_bytes);
    std::copy(send.begin(), send.end(), recv.begin());
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_to_all_sizes(*this, send, send_bytes, recv, recv_bytes);
    std::copy(send.begin(), send.end(), recv.begin());
  }

  void broadcast(std::span<std::byte>, std::int64_t root) override { require_rank(*this, root); }
  void all_reduce_max(std::span<std::int64_t>) override {}
  void all_reduce_sum(std::span<std::int64_t>) override {}
  void barrier() override {}
  std::unique_ptr<NodeMemory> allocate_node_memory(std::int64_t num_bytes) override {
    return std::make_unique<SelfMemory>(num_bytes);
  }
  std::int64_t node_memory_room() const override { return std::numeric_limits<std::int64_t>::max(); }
};

}  // namespace

std::unique_ptr<Transport> make_self_transport() {
  return std::make_unique<SelfTransport>();
}

}  // namespace metro
