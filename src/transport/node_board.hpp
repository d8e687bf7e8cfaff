// Memory of a node through which its ranks hand over what goes to other nodes and what comes from there, operation by
// operation: for each of its ranks a table of sizes, an area for messages, and flags that say how far the ranks are.
//
// All ranks of a node use it alike: begin(), then arrive() once or several times, at last finish() on the first of
// them, which waits for all_have_arrived() before, and is_finished() on the others. What was written before an arrive()
// is seen once all have arrived. There are two of everything, in turn: a rank that begins an operation has seen the
// last one finished, to which all had come from the one before.
#pragma once

#include "transport/node_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace metro {

class NodeBoard {
 public:
  // table_size: numbers of a rank; num_bytes: of the area. Memory of at least needed_bytes(), all zero.
  NodeBoard(std::unique_ptr<NodeMemory> memory, std::int64_t table_size, std::int64_t num_bytes);
  static std::int64_t needed_bytes(std::int64_t num_ranks_on_node, std::int64_t table_size, std::int64_t num_bytes);

  std::int64_t num_bytes() const { return num_bytes_; }
  bool is_first() const { return memory_->rank_on_node() == 0; }
  std::int64_t rank_on_node() const { return memory_->rank_on_node(); }
  std::int64_t num_ranks_on_node() const { return memory_->num_ranks_on_node(); }

  void begin();
  void arrive();
  bool all_have_arrived() const;
  void finish();
  bool is_finished() const;

  // Of the operation.
  std::span<std::int64_t> table(std::int64_t rank_on_node) const;  // [table_size]
  std::span<std::int64_t> own_table() const { return table(memory_->rank_on_node()); }
  std::span<std::byte> area() const;  // [num_bytes]

 private:
  std::int64_t& flag(std::int64_t idx) const;
  std::byte* half() const;

  std::unique_ptr<NodeMemory> memory_;
  std::int64_t table_size_;
  std::int64_t num_bytes_;
  std::int64_t num_operations_ = 0;
  std::int64_t num_arrivals_ = 0;
};

}  // namespace metro
