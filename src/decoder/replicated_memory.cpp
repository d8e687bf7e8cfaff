#include "decoder/replicated_memory.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "kernels/queue.hpp"
#include "transport/agree.hpp"

namespace metro {

std::int64_t part_of_shared(std::int64_t num_bytes, std::int64_t num_sharers) {
  return ceil_div(num_bytes, num_sharers);
}

ReplicatedMemory::ReplicatedMemory(const std::string& label, std::int64_t num_bytes, Sharing sharing,
                                   Transport& transport) {
  METRO_REQUIRE(sharing == Sharing::per_rank || kernels_use_host_memory(), "devices do not share memory");
  if (sharing == Sharing::per_node) {
    of_node_ = transport.allocate_node_memory(num_bytes);
  } else {
    agree(transport, [&] { of_rank_ = RawBuffer(label, num_bytes, FirstContent::unspecified); });
  }
}

std::span<std::byte> ReplicatedMemory::bytes() const {
  return of_node_ != nullptr ? of_node_->bytes() : std::span(of_rank_.data(), at(of_rank_.num_bytes()));
}

std::int64_t ReplicatedMemory::sharer_idx() const {
  return of_node_ != nullptr ? of_node_->rank_on_node() : 0;
}

std::int64_t ReplicatedMemory::num_sharers() const {
  return of_node_ != nullptr ? of_node_->num_ranks_on_node() : 1;
}

void ReplicatedMemory::publish() {
  if (of_node_ != nullptr) {
    of_node_->publish();
  }
}

std::int64_t ReplicatedMemory::num_bytes() const {
  return part_of_shared(std::ssize(bytes()), num_sharers());
}

}  // namespace metro
