// Exchanges with two levels on machines of two and three ranks per node, as which this one appears: what arrives is
// what one level brings. Messages in one piece and in pieces of 64 and 7 bytes; node memory for all of them, for some
// and for next to none.
#include "base/error.hpp"
#include "transport/exchange_checks.hpp"
#include "transport/mpi_transport.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::Levels;
using metro::MpiTransport;
using metro::test::check_all_gather;
using metro::test::check_all_to_all;

namespace {

constexpr double timeout_s = 60.0;

struct Case {
  std::int64_t ranks_per_node, piece_bytes, node_bytes;
};

Case any_case() {
  const std::int64_t per_node = GENERATE(as<std::int64_t>{}, 2, 3);
  const auto [piece_bytes, node_bytes] =
      GENERATE(table<std::int64_t, std::int64_t>({{MpiTransport::default_piece_bytes, std::int64_t{1} << 20},
                                                  {MpiTransport::default_piece_bytes, 700},
                                                  {64, 1},
                                                  {7, 1500}}));
  return {per_node, piece_bytes, node_bytes};
}

// Whether there is anything to test with so many ranks.
bool prepare(MpiTransport& transport, const Case& one) {
  const bool is_possible = transport.prepare_two_levels(one.node_bytes);
  CHECK(is_possible == (transport.size() > one.ranks_per_node));
  if (is_possible) {
    transport.set_levels(Levels::two);
  }
  CHECK(transport.bytes_sent() == 0);
  return is_possible;
}

}  // namespace

TEST_CASE("two levels gather messages of different lengths, and none") {
  const Case one = any_case();
  MpiTransport transport(timeout_s, one.piece_bytes, one.ranks_per_node);
  prepare(transport, one);

  check_all_gather(transport, [](auto rank) { return 100 * (rank + 1); });
  check_all_gather(transport, [](auto rank) { return rank % 4 == 0 ? 5 : rank % 4 == 2 ? 3 : 0; });
  check_all_gather(transport, [](auto) { return 0; });
  check_all_gather(transport, [](auto) { return 1; });
  check_all_gather(transport, [&](auto rank) { return rank == transport.size() - 1 ? 200 : 0; });
}

TEST_CASE("two levels deliver the message from rank s to rank r to its place") {
  const Case one = any_case();
  MpiTransport transport(timeout_s, one.piece_bytes, one.ranks_per_node);
  prepare(transport, one);

  check_all_to_all(transport, [](auto from, auto to) { return 50 * from + to; });
  check_all_to_all(transport, [](auto from, auto to) { return from < to ? 90 : 0; });
  check_all_to_all(transport, [](auto, auto to) { return to == 0 ? 70 : 0; });
  check_all_to_all(transport, [](auto from, auto to) { return from == to ? 70 : 0; });
  check_all_to_all(transport, [](auto, auto) { return 0; });
}

TEST_CASE("operations with one level and with two may follow each other") {
  const Case one = any_case();
  MpiTransport transport(timeout_s, one.piece_bytes, one.ranks_per_node);
  const bool is_possible = prepare(transport, one);

  for (std::int64_t round = 0; round < 20; ++round) {
    if (is_possible) {
      transport.set_levels(round % 5 == 3 ? Levels::one : Levels::two);
    }
    check_all_to_all(transport, [&](auto from, auto to) { return (from * 5 + to * 3 + round * 11) % 40; });
    if (round % 3 != 0) {
      check_all_gather(transport, [&](auto rank) { return (rank * 7 + round) % 30; });
    }
    if (round % 4 == 0) {
      transport.barrier();
    }
  }
}

TEST_CASE("two levels need several nodes, and one with several ranks") {
  MpiTransport one_node(timeout_s);
  CHECK_FALSE(one_node.prepare_two_levels(1000));
  MpiTransport apart(timeout_s, MpiTransport::default_piece_bytes, 1);
  CHECK_FALSE(apart.prepare_two_levels(1000));
  CHECK_THROWS_AS(apart.set_levels(Levels::two), metro::Bug);
}
