// Memory for what every rank holds alike and kernels only read once it is loaded: weights outside of experts, tables.
#pragma once

#include "kernels/buffer.hpp"
#include "transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace metro {

// How often it lies in the memory of a node. Once per rank: each rank has huge pages and its own NUMA domain. Once per
// node: it takes a part of the memory, and loading a part of the time; only where kernels use the memory of the host.
enum class Sharing { per_rank, per_node };

// This rank's part of the bill for num_bytes that num_sharers ranks have together.
std::int64_t part_of_shared(std::int64_t num_bytes, std::int64_t num_sharers);

class ReplicatedMemory {
 public:
  ReplicatedMemory() = default;
  // Collective. The content is unspecified. Throws AgreedError(machine) if a rank or a node has no room.
  ReplicatedMemory(const std::string& label, std::int64_t num_bytes, Sharing sharing, Transport& transport);

  // Memory of kernels, aligned to 64 bytes.
  std::span<std::byte> bytes() const;

  // Which of the ranks that share this memory this one is; they fill it together.
  std::int64_t sharer_idx() const;
  std::int64_t num_sharers() const;

  // Collective. What the sharers wrote before is seen by all of them afterwards.
  void publish();

  // This rank's part of the bill.
  std::int64_t num_bytes() const;

 private:
  RawBuffer of_rank_;
  std::unique_ptr<NodeMemory> of_node_;
};

}  // namespace metro
