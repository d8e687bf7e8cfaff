// The ranks of a node as objects of one process that take turns.
#include "transport/node_board.hpp"

#include "base/integers.hpp"
#include "transport/node_layout.hpp"
#include "transport/node_messages.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <vector>

using metro::NodeBoard;
using metro::NodeLayout;
using metro::NodeMessages;

namespace {

using Numbers = std::vector<std::int64_t>;

// A view of memory that other objects have as well.
class Memory final : public metro::NodeMemory {
 public:
  Memory(Numbers& memory, std::int64_t rank, std::int64_t num_ranks)
      : memory_(&memory), rank_(rank), num_ranks_(num_ranks) {}

  std::span<std::byte> bytes() const override { return std::as_writable_bytes(std::span(*memory_)); }
  std::int64_t rank_on_node() const override { return rank_; }
  std::int64_t num_ranks_on_node() const override { return num_ranks_; }
  void publish() override {}

 private:
  Numbers* memory_;
  std::int64_t rank_, num_ranks_;
};

struct Node {
  Node(std::int64_t num_ranks, std::int64_t table_size, std::int64_t num_bytes)
      : memory(metro::at(NodeBoard::needed_bytes(num_ranks, table_size, num_bytes) / 8)) {
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      boards.emplace_back(std::make_unique<Memory>(memory, rank, num_ranks), table_size, num_bytes);
    }
  }

  Numbers memory;
  std::vector<NodeBoard> boards;
};

}  // namespace

TEST_CASE("all have arrived when the last one has, as often as this rank") {
  Node node(3, 1, 8);
  for (NodeBoard& board : node.boards) {
    board.begin();
  }

  node.boards[1].arrive();
  node.boards[2].arrive();
  CHECK_FALSE(node.boards[1].all_have_arrived());
  node.boards[0].arrive();
  CHECK(node.boards[1].all_have_arrived());

  node.boards[1].arrive();
  CHECK_FALSE(node.boards[1].all_have_arrived());
  CHECK(node.boards[2].all_have_arrived());  // it waits for the first time only
}

TEST_CASE("an operation is finished when the first rank says so") {
  Node node(2, 1, 8);
  for (NodeBoard& board : node.boards) {
    board.begin();
    board.arrive();
  }

  CHECK_FALSE(node.boards[1].is_finished());
  node.boards[0].finish();
  CHECK(node.boards[1].is_finished());

  node.boards[1].begin();
  node.boards[1].arrive();
  CHECK_FALSE(node.boards[1].is_finished());
}

TEST_CASE("what ranks have written in the last operation is left alone by this one") {
  Node node(2, 3, 100);
  NodeBoard& board = node.boards[1];
  node.boards[0].begin();
  board.begin();
  std::ranges::fill(board.own_table(), 7);
  std::ranges::fill(board.area(), std::byte{8});
  const auto last_table = board.own_table();
  const auto last_area = board.area();

  for (NodeBoard* one : {&node.boards[0], &board}) {
    one->begin();
    std::ranges::fill(one->own_table(), 1);
    std::ranges::fill(one->area(), std::byte{2});
  }

  CHECK(std::ranges::all_of(last_table, [](std::int64_t number) { return number == 7; }));
  CHECK(std::ranges::all_of(last_area, [](std::byte byte) { return byte == std::byte{8}; }));
  CHECK(std::ranges::all_of(node.boards[0].table(1), [](std::int64_t number) { return number == 1; }));
}

TEST_CASE("messages between nodes lie in the order of senders and receivers, in slots that do not overlap") {
  // Ranks 0 and 2 on this node, 1 and 3 on the other.
  Node node(2, 8, 80);  // 40 bytes to and 40 from the other node
  const NodeLayout layout({0, 1, 0, 1}, 2);
  for (NodeBoard& board : node.boards) {
    board.begin();
  }
  // Sent to ranks 0..3, received from ranks 0..3; those of the node itself are none of its business.
  std::ranges::copy(Numbers{99, 3, 98, 4, 97, 11, 96, 12}, node.boards[0].own_table().begin());
  std::ranges::copy(Numbers{95, 5, 94, 6, 93, 9, 92, 8}, node.boards[1].own_table().begin());
  NodeMessages messages(layout, node.boards[1]);

  messages.update();

  CHECK(messages.has_sent_slot(1));
  CHECK(messages.has_received_slot(1));
  CHECK_FALSE(messages.has_sent_slot(0));
  CHECK_FALSE(messages.has_received_slot(0));
  const std::byte* const area = node.boards[1].area().data();
  CHECK(messages.sent_slot(1).data() == area);
  CHECK(messages.sent_slot(1).size() == 3 + 4 + 5 + 6);
  CHECK(messages.received_slot(1).data() == area + 40);
  CHECK(messages.received_slot(1).size() == 11 + 9 + 12 + 8);
  Numbers found;  // rank, offset, bytes
  messages.for_each_sent(1, [&](std::int64_t rank, std::span<const std::byte> message) {
    found.insert(found.end(), {rank, message.data() - area, std::ssize(message)});
  });
  messages.for_each_received(1, [&](std::int64_t rank, std::span<const std::byte> message) {
    found.insert(found.end(), {rank, message.data() - area, std::ssize(message)});
  });
  CHECK(found == Numbers{1, 3 + 4, 5, 3, 3 + 4 + 5, 6, 1, 40 + 11, 9, 3, 40 + 11 + 9 + 12, 8});
}

TEST_CASE("what is longer than a slot has none, in either direction by itself") {
  Node node(1, 6, 4 * 10);
  const NodeLayout layout({0, 1, 2}, 1);
  node.boards[0].begin();
  std::ranges::copy(Numbers{10, 0, 11, 11, 0, 10}, node.boards[0].own_table().begin());
  NodeMessages messages(layout, node.boards[0]);

  messages.update();

  CHECK(messages.has_sent_slot(0));
  CHECK_FALSE(messages.has_sent_slot(2));
  CHECK_FALSE(messages.has_received_slot(0));
  CHECK(messages.has_received_slot(2));
}
