#include "transport/pretend_transport.hpp"

#include "base/error.hpp"
#include "base/last_words.hpp"
#include "transport/preconditions.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace metro {

namespace {

// This rank's view of memory that the others of its node never touch.
class PretendMemory final : public NodeMemory {
 public:
  PretendMemory(std::int64_t num_bytes, std::int64_t rank_on_node, std::int64_t num_ranks)
      : bytes_(new (page) std::byte[static_cast<std::size_t>(num_bytes)](), static_cast<std::size_t>(num_bytes)),
        rank_on_node_(rank_on_node),
        num_ranks_(num_ranks) {}
  ~PretendMemory() override { ::operator delete[](bytes_.data(), page); }
  PretendMemory(const PretendMemory&) = delete;
  PretendMemory& operator=(const PretendMemory&) = delete;

  std::span<std::byte> bytes() const override { return bytes_; }
  std::int64_t rank_on_node() const override { return rank_on_node_; }
  std::int64_t num_ranks_on_node() const override { return num_ranks_; }
  void publish() override {}

 private:
  static constexpr std::align_val_t page{4096};
  std::span<std::byte> bytes_;
  std::int64_t rank_on_node_, num_ranks_;
};

class PretendTransport final : public Transport {
 public:
  explicit PretendTransport(PretendedJob job) : job_(std::move(job)) {
    METRO_REQUIRE(job_.size >= 1 && job_.rank >= 0 && job_.rank < job_.size,
                  "rank " + std::to_string(job_.rank) + " of " + std::to_string(job_.size));
    METRO_REQUIRE(job_.ranks_per_node >= 1, std::to_string(job_.ranks_per_node) + " ranks a node");
  }

  std::int64_t rank() const override { return job_.rank; }
  std::int64_t size() const override { return job_.size; }
  std::string name() const override { return "pretend"; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_gather_sizes(*this, send, recv, recv_bytes);
    receive(job_.gathered, send, recv, recv_bytes);
    bytes_sent_ += std::ssize(send) * (job_.size - 1);
  }

  void all_to_all(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes, std::span<std::byte> recv,
                  std::span<const std::int64_t> recv_bytes) override {
    require_all_to_all_sizes(*this, send, send_bytes, recv, recv_bytes);
    std::size_t own_begin = 0;
    for (std::int64_t rank = 0; rank < job_.rank; ++rank) {
      own_begin += static_cast<std::size_t>(send_bytes[static_cast<std::size_t>(rank)]);
    }
    const auto own = send.subspan(own_begin, static_cast<std::size_t>(send_bytes[static_cast<std::size_t>(job_.rank)]));
    receive(job_.exchanged, own, recv, recv_bytes);
    bytes_sent_ += std::ssize(send) - std::ssize(own);
  }

  void exchange_messages(std::span<const std::span<const std::byte>> /*to_ranks*/,
                         std::span<const std::span<std::byte>> /*from_ranks*/, const char* operation) override {
    METRO_REQUIRE(false, std::string(operation) + ": pretended ranks have no memory of a device");
  }

  void broadcast(std::span<std::byte> data, std::int64_t root) override {
    require_rank(*this, root);
    if (root == job_.rank) {
      bytes_sent_ += std::ssize(data) * (job_.size - 1);
      return;
    }
    METRO_REQUIRE(job_.broadcast,
                  "no rule for what rank " + std::to_string(root) + " broadcasts in " + current_phase());
    job_.broadcast(current_phase(), root, data);
  }

  void all_reduce_max(std::span<std::int64_t> values) override { count_reduced(values); }

  void all_reduce_sum(std::span<std::int64_t> values) override {
    for (std::int64_t& value : values) {
      METRO_REQUIRE(std::abs(value) <= std::numeric_limits<std::int64_t>::max() / job_.size, std::to_string(value));
      value *= job_.size;
    }
    count_reduced(values);
  }

  void barrier() override {}

  std::unique_ptr<NodeMemory> allocate_node_memory(std::int64_t num_bytes) override {
    const std::int64_t first = job_.rank / job_.ranks_per_node * job_.ranks_per_node;
    return std::make_unique<PretendMemory>(num_bytes, job_.rank - first,
                                           std::min(job_.ranks_per_node, job_.size - first));
  }
  std::int64_t node_memory_room() const override { return std::numeric_limits<std::int64_t>::max(); }

 private:
  void receive(const PretendedMessage& rule, std::span<const std::byte> own, std::span<std::byte> recv,
               std::span<const std::int64_t> recv_bytes) {
    std::size_t begin = 0;
    for (std::int64_t rank = 0; rank < job_.size; ++rank) {
      const auto message = recv.subspan(begin, static_cast<std::size_t>(recv_bytes[static_cast<std::size_t>(rank)]));
      begin += message.size();
      if (rank != job_.rank && rule) {
        rule(current_phase(), rank, own, message);
        continue;
      }
      METRO_REQUIRE(message.size() == own.size(),
                    "no rule for " + std::to_string(message.size()) + " bytes from rank " + std::to_string(rank) +
                        " in " + current_phase() + ": this rank sends " + std::to_string(own.size()));
      std::copy(own.begin(), own.end(), message.begin());
    }
  }

  void count_reduced(std::span<const std::int64_t> values) {
    bytes_sent_ += static_cast<std::int64_t>(values.size_bytes()) * (job_.size - 1);
  }

  PretendedJob job_;
};

}  // namespace

std::unique_ptr<Transport> make_pretend_transport(PretendedJob job) {
  return std::make_unique<PretendTransport>(std::move(job));
}

}  // namespace metro
