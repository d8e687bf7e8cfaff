// Every rank count runs all cases; messages in one piece and in pieces of 64 and 7 bytes.
#include "transport/mpi_transport.hpp"
#include "base/error.hpp"
#include "transport/exchange_checks.hpp"
#include "transport/messages.hpp"

#include <catch2/catch.hpp>

using metro::MpiTransport;
using metro::test::check_all_gather;
using metro::test::check_all_to_all;
using metro::test::Messages;

namespace {

constexpr double timeout_s = 60.0;

std::int64_t piece_bytes() {
  return GENERATE(as<std::int64_t>{}, MpiTransport::default_piece_bytes, 64, 7);
}

}  // namespace

TEST_CASE("all-gather joins messages of different lengths in rank order") {
  MpiTransport transport(timeout_s, piece_bytes());

  check_all_gather(transport, [](auto rank) { return 100 * (rank + 1); });
  check_all_gather(transport, [](auto rank) { return 100 * rank + 3; });
  check_all_gather(transport, [](auto) { return 1; });
}

TEST_CASE("ranks may gather nothing, some of them or all") {
  MpiTransport transport(timeout_s, piece_bytes());

  check_all_gather(transport, [](auto rank) { return rank % 4 == 0 ? 5 : rank % 4 == 2 ? 3 : 0; });  // 5 0 3 0 ...
  check_all_gather(transport, [](auto) { return 0; });
  check_all_gather(transport, [&](auto rank) { return rank == transport.size() - 1 ? 200 : 0; });
}

TEST_CASE("messages between pairs of ranks arrive wherever they lie, and what a rank has for itself is left alone") {
  MpiTransport transport(timeout_s, piece_bytes());
  const auto size = static_cast<std::size_t>(transport.size());
  const auto own = static_cast<std::size_t>(transport.rank());
  const auto length = [](auto from, auto to) { return from == to ? 0 : 30 * from + to; };
  const Messages sent = metro::test::messages_from(transport.rank(), transport.size(), length);
  const Messages expected = metro::test::messages_to(transport.rank(), transport.size(), length);
  std::vector<std::byte> received(expected.data.size());
  std::byte untouched{7};
  std::vector<std::span<const std::byte>> to_ranks(size);
  std::vector<std::span<std::byte>> from_ranks(size);
  for (std::size_t rank = 0, to = 0, from = 0; rank < size; ++rank) {
    const auto to_bytes = static_cast<std::size_t>(sent.bytes[rank]);
    const auto from_bytes = static_cast<std::size_t>(expected.bytes[rank]);
    to_ranks[rank] = std::span(sent.data).subspan(to, to_bytes);
    from_ranks[rank] = std::span(received).subspan(from, from_bytes);
    to += to_bytes;
    from += from_bytes;
  }
  from_ranks[own] = {&untouched, 1};
  const std::int64_t sent_before = transport.bytes_sent();

  transport.exchange_messages(to_ranks, from_ranks, "messages");

  CHECK(received == expected.data);
  CHECK(untouched == std::byte{7});
  CHECK(transport.bytes_sent() - sent_before == metro::test::sum(sent.bytes));
  CHECK_THROWS_AS(transport.exchange_messages({}, from_ranks, "messages"), metro::Bug);
}

TEST_CASE("all-to-all delivers the message from rank s to rank r to its place") {
  MpiTransport transport(timeout_s, piece_bytes());

  check_all_to_all(transport, [](auto from, auto to) { return 50 * from + to; });
  check_all_to_all(transport, [](auto from, auto to) { return 13 * to + 2 * from + 1; });
}

TEST_CASE("all-to-all messages may be empty, in one direction, for some ranks or for all") {
  MpiTransport transport(timeout_s, piece_bytes());

  check_all_to_all(transport, [](auto from, auto to) { return from < to ? 90 : 0; });
  check_all_to_all(transport, [](auto from, auto) { return from == 0 ? 70 : 0; });
  check_all_to_all(transport, [](auto, auto to) { return to == 0 ? 70 : 0; });
  check_all_to_all(transport, [](auto from, auto to) { return from == to ? 70 : 0; });
  check_all_to_all(transport, [](auto, auto) { return 0; });
}

TEST_CASE("exchanges in a row do not mix") {
  MpiTransport transport(timeout_s, 16);

  for (std::int64_t round = 0; round < 20; ++round) {
    check_all_to_all(transport, [&](auto from, auto to) { return (from * 5 + to * 3 + round * 11) % 40; });
    check_all_gather(transport, [&](auto rank) { return (rank * 7 + round) % 30; });
  }
}

TEST_CASE("broadcast brings the bytes of any root to all ranks") {
  MpiTransport transport(timeout_s, piece_bytes());

  for (std::int64_t root = 0; root < transport.size(); ++root) {
    Messages expected;
    expected.append(root, 0, 300 + root);
    std::vector<std::byte> data =
        transport.rank() == root ? expected.data : std::vector<std::byte>(expected.data.size());
    const std::int64_t sent_before = transport.bytes_sent();

    transport.broadcast(data, root);

    CHECK(data == expected.data);
    CHECK(transport.bytes_sent() - sent_before ==
          (transport.rank() == root ? (300 + root) * (transport.size() - 1) : 0));
  }
}

TEST_CASE("reductions go element by element") {
  MpiTransport transport(timeout_s, piece_bytes());
  const std::int64_t size = transport.size();
  const std::int64_t large = std::int64_t{1} << 40;
  std::vector<std::int64_t> sums;
  std::vector<std::int64_t> largest;
  std::vector<std::int64_t> expected_sums;
  std::vector<std::int64_t> expected_largest;
  for (std::int64_t i = 0; i < 33; ++i) {
    sums.push_back(large * transport.rank() + i);
    expected_sums.push_back(large * (size * (size - 1) / 2) + i * size);
    largest.push_back(i % size == transport.rank() ? i : -large);
    expected_largest.push_back(i);
  }

  transport.all_reduce_sum(sums);
  transport.all_reduce_max(largest);

  CHECK(sums == expected_sums);
  CHECK(largest == expected_largest);
}

TEST_CASE("every collective takes null pointers for zero bytes") {
  MpiTransport transport(timeout_s);
  const std::vector<std::int64_t> nothing(static_cast<std::size_t>(transport.size()), 0);

  transport.all_gather({}, {}, nothing);
  transport.all_to_all({}, nothing, {}, nothing);
  transport.broadcast({}, transport.size() - 1);
  transport.all_reduce_max({});
  transport.all_reduce_sum({});
  transport.barrier();

  CHECK(transport.bytes_sent() == 0);
  CHECK(transport.name() == "mpi");
}

TEST_CASE("no rank passes a barrier before all have come") {
  MpiTransport transport(timeout_s);
  MPI_Win window = MPI_WIN_NULL;
  std::int64_t* own_count = nullptr;
  MPI_Comm comm = MPI_COMM_WORLD;
  REQUIRE(MPI_Win_allocate(sizeof(std::int64_t), sizeof(std::int64_t), MPI_INFO_NULL, comm, &own_count, &window) ==
          MPI_SUCCESS);
  *own_count = 0;
  transport.barrier();

  // Each rank counts itself on rank 0; after the barrier everybody must see all of them.
  const std::int64_t one = 1;
  std::int64_t seen = 0;
  MPI_Win_lock_all(0, window);
  MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window);
  MPI_Win_flush_all(window);
  transport.barrier();
  MPI_Fetch_and_op(nullptr, &seen, MPI_INT64_T, 0, 0, MPI_NO_OP, window);
  MPI_Win_flush_all(window);
  MPI_Win_unlock_all(window);

  CHECK(seen == transport.size());
  MPI_Win_free(&window);
}
