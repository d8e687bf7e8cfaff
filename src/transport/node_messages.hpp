// The messages of one all-to-all between the ranks of this node and those of others, out of the tables of sizes that
// the ranks of the node have put on its board.
//
// What goes from one node to another lies in the order of senders, then of receivers: both nodes know all sizes of it,
// and so where each message is. It has a slot in the area of the board; if it is longer than that, which both nodes see
// alike, its messages go from rank to rank.
#pragma once

#include "base/integers.hpp"
#include "transport/node_board.hpp"
#include "transport/node_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class NodeMessages {
 public:
  // Both must outlive it.
  NodeMessages(const NodeLayout& layout, const NodeBoard& board);

  // Of the board's tables: bytes to each rank of the job, then from each.
  static std::int64_t table_size(std::int64_t num_ranks) { return 2 * num_ranks; }

  // To be called once the tables of all ranks of this node are there.
  void update();

  // Whether what goes to, or comes from, `node` uses a slot; never for the own node.
  bool has_sent_slot(std::int64_t node) const { return is_other(node) && bytes_to_[at(node)] <= slot_bytes_; }
  bool has_received_slot(std::int64_t node) const { return is_other(node) && bytes_from_[at(node)] <= slot_bytes_; }
  // Of as many bytes as there are messages.
  std::span<std::byte> sent_slot(std::int64_t node) const { return slot(2 * place_of(node), bytes_to_[at(node)]); }
  std::span<std::byte> received_slot(std::int64_t node) const {
    return slot(2 * place_of(node) + 1, bytes_from_[at(node)]);
  }

  // take(other rank, its message): of what this rank sends to, or receives from, a node that has a slot.
  template <class F>
  void for_each_sent(std::int64_t node, const F& take) const {
    const std::span<std::byte> slot = sent_slot(node);
    std::int64_t offset = 0;
    for (std::int64_t own = 0; own <= board_->rank_on_node(); ++own) {
      for (const std::int64_t other : layout_->ranks_of(node)) {
        const std::int64_t bytes = bytes_to_rank(own, other);
        if (own == board_->rank_on_node()) {
          take(other, slot.subspan(at(offset), at(bytes)));
        }
        offset += bytes;
      }
    }
  }
  template <class F>
  void for_each_received(std::int64_t node, const F& take) const {
    const std::span<std::byte> slot = received_slot(node);
    std::int64_t offset = 0;
    for (const std::int64_t other : layout_->ranks_of(node)) {
      for (std::int64_t own = 0; own < board_->num_ranks_on_node(); ++own) {
        const std::int64_t bytes = bytes_from_rank(own, other);
        if (own == board_->rank_on_node()) {
          take(other, slot.subspan(at(offset), at(bytes)));
        }
        offset += bytes;
      }
    }
  }

 private:
  bool is_other(std::int64_t node) const { return node != layout_->own_node(); }
  std::int64_t bytes_to_rank(std::int64_t own, std::int64_t other) const { return board_->table(own)[at(other)]; }
  std::int64_t bytes_from_rank(std::int64_t own, std::int64_t other) const {
    return board_->table(own)[at(layout_->num_ranks() + other)];
  }
  std::int64_t place_of(std::int64_t node) const { return node < layout_->own_node() ? node : node - 1; }
  std::span<std::byte> slot(std::int64_t idx, std::int64_t bytes) const {
    return board_->area().subspan(at(idx * slot_bytes_), at(bytes));
  }

  const NodeLayout* layout_;
  const NodeBoard* board_;
  std::int64_t slot_bytes_;
  std::vector<std::int64_t> bytes_to_, bytes_from_;  // [num_nodes]
};

}  // namespace metro
