#include "transport/node_board.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <atomic>
#include <string>
#include <utility>

namespace metro {

namespace {

// Flags lie apart, so that ranks do not take each other's cache lines.
constexpr std::int64_t line_bytes = 128;
constexpr auto number_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));

std::int64_t whole_lines(std::int64_t num_bytes) {
  return ceil_div(num_bytes, line_bytes) * line_bytes;
}

std::int64_t tables_bytes(std::int64_t num_ranks_on_node, std::int64_t table_size) {
  return whole_lines(num_ranks_on_node * table_size * number_bytes);
}

std::int64_t half_bytes(std::int64_t num_ranks_on_node, std::int64_t table_size, std::int64_t num_bytes) {
  return tables_bytes(num_ranks_on_node, table_size) + whole_lines(num_bytes);
}

// One for each rank and one for the end of an operation.
std::int64_t flags_bytes(std::int64_t num_ranks_on_node) {
  return (num_ranks_on_node + 1) * line_bytes;
}

}  // namespace

NodeBoard::NodeBoard(std::unique_ptr<NodeMemory> memory, std::int64_t table_size, std::int64_t num_bytes)
    : memory_(std::move(memory)), table_size_(table_size), num_bytes_(num_bytes) {
  const std::int64_t needed = needed_bytes(num_ranks_on_node(), table_size, num_bytes);
  METRO_REQUIRE(std::ssize(memory_->bytes()) >= needed, std::to_string(needed));
}

std::int64_t NodeBoard::needed_bytes(std::int64_t num_ranks_on_node, std::int64_t table_size, std::int64_t num_bytes) {
  return flags_bytes(num_ranks_on_node) + 2 * half_bytes(num_ranks_on_node, table_size, num_bytes);
}

void NodeBoard::begin() {
  ++num_operations_;
}

void NodeBoard::arrive() {
  ++num_arrivals_;
  std::atomic_ref(flag(memory_->rank_on_node())).store(num_arrivals_, std::memory_order_release);
}

bool NodeBoard::all_have_arrived() const {
  for (std::int64_t rank = 0; rank < num_ranks_on_node(); ++rank) {
    if (std::atomic_ref(flag(rank)).load(std::memory_order_acquire) < num_arrivals_) {
      return false;
    }
  }
  return true;
}

void NodeBoard::finish() {
  std::atomic_ref(flag(num_ranks_on_node())).store(num_arrivals_, std::memory_order_release);
}

bool NodeBoard::is_finished() const {
  return std::atomic_ref(flag(num_ranks_on_node())).load(std::memory_order_acquire) >= num_arrivals_;
}

std::int64_t& NodeBoard::flag(std::int64_t idx) const {
  return *reinterpret_cast<std::int64_t*>(memory_->bytes().data() + idx * line_bytes);
}

std::byte* NodeBoard::half() const {
  return memory_->bytes().data() + flags_bytes(num_ranks_on_node()) +
         num_operations_ % 2 * half_bytes(num_ranks_on_node(), table_size_, num_bytes_);
}

std::span<std::int64_t> NodeBoard::table(std::int64_t rank_on_node) const {
  return {reinterpret_cast<std::int64_t*>(half()) + rank_on_node * table_size_, at(table_size_)};
}

std::span<std::byte> NodeBoard::area() const {
  return {half() + tables_bytes(num_ranks_on_node(), table_size_), at(num_bytes_)};
}

}  // namespace metro
