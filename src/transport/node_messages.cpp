#include "transport/node_messages.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace metro {

NodeMessages::NodeMessages(const NodeLayout& layout, const NodeBoard& board)
    : layout_(&layout), board_(&board), bytes_to_(at(layout.num_nodes())), bytes_from_(at(layout.num_nodes())) {
  METRO_REQUIRE(layout.num_nodes() > 1, "there is no other node");
  slot_bytes_ = board.num_bytes() / (2 * (layout.num_nodes() - 1));
}

void NodeMessages::update() {
  std::ranges::fill(bytes_to_, 0);
  std::ranges::fill(bytes_from_, 0);
  for (std::int64_t own = 0; own < board_->num_ranks_on_node(); ++own) {
    for (std::int64_t other = 0; other < layout_->num_ranks(); ++other) {
      bytes_to_[at(layout_->node_of(other))] += bytes_to_rank(own, other);
      bytes_from_[at(layout_->node_of(other))] += bytes_from_rank(own, other);
    }
  }
}

}  // namespace metro
