// Memory that the ranks of a node have in common: made by Transport::allocate_node_memory().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace metro {

class NodeMemory {
 public:
  // Not collective: the others keep theirs.
  virtual ~NodeMemory() = default;

  // The same bytes on all ranks of the node, at an address that may differ; aligned to a page. Every rank may write.
  virtual std::span<std::byte> bytes() const = 0;

  // Who shares it, in the order of ranks.
  virtual std::int64_t rank_on_node() const = 0;
  virtual std::int64_t num_ranks_on_node() const = 0;

  // Collective over all ranks of the job. What a rank of the node wrote before is seen by all of them afterwards.
  virtual void publish() = 0;
};

}  // namespace metro
