// The transport of a job of one rank: every message is a copy, or nothing. What it can wait for is its device.
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "transport/mpi_abort.hpp"
#include "transport/preconditions.hpp"
#include "transport/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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
  explicit SelfTransport(double timeout_s) : timeout_s_(timeout_s) {
    METRO_REQUIRE(timeout_s > 0.0, std::to_string(timeout_s));
  }

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

  void exchange_messages(std::span<const std::span<const std::byte>> to_ranks,
                         std::span<const std::span<std::byte>> from_ranks, const char* /*operation*/) override {
    require_exchange_sizes(*this, to_ranks, from_ranks);
  }

  void broadcast(std::span<std::byte>, std::int64_t root) override { require_rank(*this, root); }
  void all_reduce_max(std::span<std::int64_t>) override {}
  void all_reduce_sum(std::span<std::int64_t>) override {}
  void barrier() override {}
  std::unique_ptr<NodeMemory> allocate_node_memory(std::int64_t num_bytes) override {
    return std::make_unique<SelfMemory>(num_bytes);
  }
  std::int64_t node_memory_room() const override { return std::numeric_limits<std::int64_t>::max(); }

  void watch(const char* /*operation*/, bool begins) override {
    constexpr double longest_gap_s = 1.0;  // a longer one: this process was stopped meanwhile
    const auto now = std::chrono::steady_clock::now();
    const double gap_s = std::chrono::duration<double>(now - last_watch_).count();
    waited_s_ = begins ? 0.0 : waited_s_ + std::min(gap_s, longest_gap_s);
    last_watch_ = now;
    if (waited_s_ > timeout_s_) {
      // Not an exception: what would be freed then waits for the device as well.
      write_last_words(
          fmt::format("waited {:g} s for {} (run.timeout_s): it hangs, or is too slow", timeout_s_, work_of_device)
              .c_str());
      abort_job(static_cast<int>(ExitCode::machine));
    }
  }

 private:
  double timeout_s_;
  double waited_s_ = 0.0;
  std::chrono::steady_clock::time_point last_watch_;
};

}  // namespace

std::unique_ptr<Transport> make_self_transport(double timeout_s) {
  return std::make_unique<SelfTransport>(timeout_s);
}

}  // namespace metro
