// MpiTransport with Levels::two: ranks of a node put what goes to other nodes into the memory of their node, the first
// of them exchanges it with the first ranks of the other nodes, one message for each pair of nodes and direction, and
// all take what came out of the memory again. Who waits for a rank of its own node waits with the same end as for MPI.
#include "base/error.hpp"
#include "base/integers.hpp"
#include "transport/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

namespace metro {

namespace {

void copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

// Where each rank's message begins, when they lie in the order of `ranks`. offsets [num_ranks] by rank.
template <class Ranks>
void set_offsets(const Ranks& ranks, std::span<const std::int64_t> bytes, std::vector<std::int64_t>& offsets) {
  std::int64_t offset = 0;
  for (const std::int64_t rank : ranks) {
    offsets[at(rank)] = offset;
    offset += bytes[at(rank)];
  }
}

}  // namespace

bool MpiTransport::prepare_two_levels(std::int64_t num_bytes) {
  METRO_REQUIRE(num_bytes > 0, std::to_string(num_bytes));
  const std::int64_t sent_before = bytes_sent_;
  levels_ = Levels::one;
  node_messages_.reset();
  board_.reset();
  std::int64_t most_ranks = 1;
  layout_.emplace(find_nodes(most_ranks), rank_);
  if (layout_->has_two_levels()) {
    // The same size everywhere, as on the node with most ranks.
    const std::int64_t table_size = NodeMessages::table_size(size_);
    auto memory = allocate_node_memory(NodeBoard::needed_bytes(most_ranks, table_size, num_bytes));
    if (memory->rank_on_node() == 0) {
      std::ranges::fill(memory->bytes(), std::byte{0});
    }
    memory->publish();
    board_.emplace(std::move(memory), table_size, num_bytes);
    node_messages_.emplace(*layout_, *board_);
    for (auto* offsets : {&send_offsets_, &recv_offsets_, &area_offsets_}) {
      offsets->resize(at(size_));
    }
  }
  bytes_sent_ = sent_before;  // that was nothing of a caller's
  return board_.has_value();
}

// Collective. The node of each rank; the ranks of the node with most of them.
std::vector<std::int64_t> MpiTransport::find_nodes(std::int64_t& most_ranks) {
  constexpr auto number_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  const auto memory = allocate_node_memory(number_bytes);
  if (memory->rank_on_node() == 0) {
    std::memcpy(memory->bytes().data(), &rank_, sizeof rank_);
  }
  memory->publish();
  std::int64_t own_lowest = 0;
  std::memcpy(&own_lowest, memory->bytes().data(), sizeof own_lowest);
  std::vector<std::int64_t> lowest(at(size_));
  all_gather(std::as_bytes(std::span(&own_lowest, 1)), std::as_writable_bytes(std::span(lowest)),
             std::vector<std::int64_t>(at(size_), number_bytes));
  most_ranks = memory->num_ranks_on_node();
  all_reduce_max({&most_ranks, 1});
  return number_nodes(lowest);
}

void MpiTransport::set_levels(Levels levels) {
  METRO_REQUIRE(levels == Levels::one || board_.has_value(), "two levels are not prepared");
  levels_ = levels;
}

// On the first rank of a node, when all have arrived: from(node) and to(node) are what travels, none if empty.
template <class From, class To>
void MpiTransport::start_between_nodes(const From& from, const To& to) {
  for (std::int64_t node = 0; node < layout_->num_nodes(); ++node) {
    if (node != layout_->own_node()) {
      start_receive(from(node), layout_->leader_of(node));
    }
  }
  for (std::int64_t node = 0; node < layout_->num_nodes(); ++node) {
    if (node != layout_->own_node()) {
      start_send(to(node), layout_->leader_of(node));
    }
  }
}

void MpiTransport::finish_on_node(const char* operation) {
  wait_for_requests(operation);
  if (board_->is_first()) {
    board_->finish();
  } else {
    wait_until(operation, [this] { return board_->is_finished(); });
  }
}

void MpiTransport::all_gather_by_nodes(std::span<const std::byte> send, std::span<std::byte> recv,
                                       std::span<const std::int64_t> recv_bytes) {
  constexpr const char* operation = "all-gather";
  ++num_operations_;
  take_next_tag();
  board_->begin();
  // The messages of all ranks, node by node, so that those of a node lie together.
  set_offsets(layout_->order(), recv_bytes, area_offsets_);
  set_offsets(std::views::iota(std::int64_t{0}, size_), recv_bytes, recv_offsets_);
  const std::span<std::byte> area = board_->area();
  copy(send, area.subspan(at(area_offsets_[at(rank_)])));
  board_->arrive();
  if (board_->is_first()) {
    wait_until(operation, [this] { return board_->all_have_arrived(); });
    const auto part_of = [&](std::int64_t node) {
      const std::int64_t last = layout_->ranks_of(node).back();
      const std::int64_t begin = area_offsets_[at(layout_->leader_of(node))];
      return area.subspan(at(begin), at(area_offsets_[at(last)] + recv_bytes[at(last)] - begin));
    };
    start_between_nodes(part_of, [&](std::int64_t /*node*/) { return part_of(layout_->own_node()); });
  }
  finish_on_node(operation);
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    copy(area.subspan(at(area_offsets_[at(rank)]), at(recv_bytes[at(rank)])),
         recv.subspan(at(recv_offsets_[at(rank)])));
  }
}

void MpiTransport::all_to_all_by_nodes(std::span<const std::byte> send, std::span<const std::int64_t> send_bytes,
                                       std::span<std::byte> recv, std::span<const std::int64_t> recv_bytes) {
  constexpr const char* operation = "all-to-all";
  ++num_operations_;
  take_next_tag();
  board_->begin();
  std::ranges::copy(send_bytes, board_->own_table().begin());
  std::ranges::copy(recv_bytes, board_->own_table().begin() + size_);
  board_->arrive();
  wait_until(operation, [this] { return board_->all_have_arrived(); });

  node_messages_->update();
  const auto ranks = std::views::iota(std::int64_t{0}, size_);
  set_offsets(ranks, send_bytes, send_offsets_);
  set_offsets(ranks, recv_bytes, recv_offsets_);
  for (std::int64_t node = 0; node < layout_->num_nodes(); ++node) {
    if (node_messages_->has_sent_slot(node)) {
      node_messages_->for_each_sent(node, [&](std::int64_t rank, std::span<std::byte> message) {
        copy(send.subspan(at(send_offsets_[at(rank)]), message.size()), message);
      });
    }
  }
  board_->arrive();
  start_messages(
      send, send_bytes, recv, recv_bytes,
      [this](std::int64_t rank) { return !node_messages_->has_sent_slot(layout_->node_of(rank)); },
      [this](std::int64_t rank) { return !node_messages_->has_received_slot(layout_->node_of(rank)); });
  if (board_->is_first()) {
    wait_until(operation, [this] { return board_->all_have_arrived(); });
    start_between_nodes(
        [this](std::int64_t node) {
          return node_messages_->has_received_slot(node) ? node_messages_->received_slot(node) : std::span<std::byte>();
        },
        [this](std::int64_t node) {
          return node_messages_->has_sent_slot(node) ? node_messages_->sent_slot(node) : std::span<std::byte>();
        });
  }
  finish_on_node(operation);
  for (std::int64_t node = 0; node < layout_->num_nodes(); ++node) {
    if (node_messages_->has_received_slot(node)) {
      node_messages_->for_each_received(node, [&](std::int64_t rank, std::span<const std::byte> message) {
        copy(message, recv.subspan(at(recv_offsets_[at(rank)])));
      });
    }
  }
}

}  // namespace metro
