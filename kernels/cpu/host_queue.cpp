// The queue where kernels run on the host: they are over when they return, so there is nothing to wait for, and nothing
// to gain from recording them.
#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/graph.hpp"
#include "kernels/portable/launch_count.hpp"
#include "kernels/queue.hpp"
#include "kernels/queue_lifetime.hpp"

#include <cstring>
#include <optional>

namespace metro {

void start_queue(int /*device*/) {}

void stop_queue() {}

bool kernels_use_host_memory() {
  return true;
}

void wait_for_kernels() {}

void set_waiting_check(std::function<void(bool)> /*check*/) {}

void queue_copy_to_kernels(void* to, const void* from_host, std::int64_t num_bytes) {
  std::memcpy(to, from_host, static_cast<std::size_t>(num_bytes));
}

void queue_copy_to_host(void* to_host, const void* from, std::int64_t num_bytes) {
  std::memcpy(to_host, from, static_cast<std::size_t>(num_bytes));
}

void queue_copy(void* to, const void* from, std::int64_t num_bytes) {
  std::memmove(to, from, static_cast<std::size_t>(num_bytes));
}

void* native_queue() {
  return nullptr;
}

std::int64_t num_launches() {
  return portable::launches_so_far;
}

std::optional<std::int64_t> kernel_memory_room() {
  return std::nullopt;
}

struct KernelGraph::Native {};

KernelGraph::KernelGraph() = default;
KernelGraph::~KernelGraph() = default;
KernelGraph::KernelGraph(KernelGraph&& other) noexcept = default;
KernelGraph& KernelGraph::operator=(KernelGraph&& other) noexcept = default;

bool KernelGraph::is_supported() {
  return false;
}

void KernelGraph::record(const std::function<void()>& /*work*/) {
  METRO_REQUIRE(is_supported(), "kernels of the host are not recorded");
}

void KernelGraph::launch() const {
  METRO_REQUIRE(is_recorded(), "no graph was recorded");
}

}  // namespace metro
