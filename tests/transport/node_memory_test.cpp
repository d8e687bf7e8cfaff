// Memory that ranks of a node share: on one node, and as if nodes had two ranks.
#include "transport/mpi_transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>

using metro::MpiTransport;
using metro::NodeMemory;

namespace {

constexpr double timeout_s = 60.0;

}  // namespace

TEST_CASE("every rank of a node sees what the others wrote, and nothing of other nodes") {
  const std::int64_t per_node = GENERATE(as<std::int64_t>{}, 0, 2);
  const std::int64_t num_bytes = GENERATE(as<std::int64_t>{}, 1, 4096, 300001);
  MpiTransport transport(timeout_s, MpiTransport::default_piece_bytes, per_node);
  const std::int64_t node = per_node == 0 ? 0 : transport.rank() / per_node;
  const std::int64_t first = per_node == 0 ? 0 : node * per_node;
  const std::int64_t num_ranks =
      per_node == 0 ? transport.size() : std::min(per_node, transport.size() - node * per_node);
  const auto written_by = [](std::int64_t rank) { return static_cast<std::byte>(17 + rank); };

  const std::unique_ptr<NodeMemory> memory = transport.allocate_node_memory(num_bytes);
  const auto bytes = memory->bytes();
  for (std::int64_t i = memory->rank_on_node(); i < num_bytes; i += memory->num_ranks_on_node()) {
    bytes[static_cast<std::size_t>(i)] = written_by(transport.rank());
  }
  memory->publish();

  CHECK(memory->rank_on_node() == transport.rank() - first);
  CHECK(memory->num_ranks_on_node() == num_ranks);
  CHECK(std::ssize(bytes) == num_bytes);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 4096 == 0);
  bool as_written = true;
  for (std::int64_t i = 0; i < num_bytes; ++i) {
    as_written = as_written && bytes[static_cast<std::size_t>(i)] == written_by(first + i % num_ranks);
  }
  CHECK(as_written);
}

TEST_CASE("memory of no bytes can be shared, and several pieces do not touch each other") {
  MpiTransport transport(timeout_s);

  const std::unique_ptr<NodeMemory> none = transport.allocate_node_memory(0);
  const std::unique_ptr<NodeMemory> a = transport.allocate_node_memory(5000);
  const std::unique_ptr<NodeMemory> b = transport.allocate_node_memory(5000);
  if (transport.rank() == 0) {
    std::ranges::fill(a->bytes(), std::byte{1});
    std::ranges::fill(b->bytes(), std::byte{2});
  }
  a->publish();
  b->publish();

  CHECK(none->bytes().empty());
  CHECK(std::ranges::count(a->bytes(), std::byte{1}) == 5000);
  CHECK(std::ranges::count(b->bytes(), std::byte{2}) == 5000);
  CHECK(transport.node_memory_room() >= 0);
}
