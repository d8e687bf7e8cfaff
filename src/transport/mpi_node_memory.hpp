// Memory of a node: a segment that the ranks of a node have mapped.
#pragma once

#include "transport/node_memory.hpp"
#include "transport/shared_segment.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <utility>

namespace metro {

class MpiNodeMemory final : public NodeMemory {
 public:
  // `transport` must outlive it.
  MpiNodeMemory(Transport& transport, SharedSegment segment, std::int64_t rank_on_node, std::int64_t num_ranks_on_node)
      : transport_(&transport),
        segment_(std::move(segment)),
        rank_on_node_(rank_on_node),
        num_ranks_on_node_(num_ranks_on_node) {}

  std::span<std::byte> bytes() const override { return segment_.bytes(); }
  std::int64_t rank_on_node() const override { return rank_on_node_; }
  std::int64_t num_ranks_on_node() const override { return num_ranks_on_node_; }
  void publish() override;

 private:
  Transport* transport_;
  SharedSegment segment_;
  std::int64_t rank_on_node_, num_ranks_on_node_;
};

}  // namespace metro
