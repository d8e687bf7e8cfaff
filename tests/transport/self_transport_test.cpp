#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "transport/agree.hpp"
#include "transport/messages.hpp"
#include "transport/transport.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include <array>
#include <stdexcept>

using metro::ExitCode;
using metro::test::expect_error;
using metro::test::Messages;

namespace {

const std::array<std::int64_t, 1> no_bytes{0};

}  // namespace

TEST_CASE("a single rank gathers and exchanges its own message") {
  const auto transport = metro::make_self_transport();
  const Messages sent = metro::test::messages_from(0, 1, [](auto, auto) { return 100; });
  std::vector<std::byte> gathered(100);
  std::vector<std::byte> exchanged(100);

  transport->all_gather(sent.data, gathered, sent.bytes);
  transport->all_to_all(sent.data, sent.bytes, exchanged, sent.bytes);

  CHECK(gathered == sent.data);
  CHECK(exchanged == sent.data);
  CHECK(transport->rank() == 0);
  CHECK(transport->size() == 1);
  CHECK(transport->name() == "self");
  CHECK(transport->bytes_sent() == 0);
}

TEST_CASE("a single rank keeps what it broadcasts and reduces") {
  const auto transport = metro::make_self_transport();
  std::vector<std::int64_t> values{3, -7};

  transport->broadcast(std::as_writable_bytes(std::span(values)), 0);
  transport->all_reduce_max(values);
  transport->all_reduce_sum(values);
  transport->barrier();

  CHECK(values == std::vector<std::int64_t>{3, -7});
}

TEST_CASE("null pointers are legal for zero bytes") {
  const auto transport = metro::make_self_transport();

  CHECK_NOTHROW(transport->all_gather({}, {}, no_bytes));
  CHECK_NOTHROW(transport->all_to_all({}, no_bytes, {}, no_bytes));
  CHECK_NOTHROW(transport->broadcast({}, 0));
  CHECK_NOTHROW(transport->all_reduce_sum({}));
}

TEST_CASE("sizes that contradict each other are a bug of the caller") {
  const auto transport = metro::make_self_transport();
  std::array<std::byte, 4> data{};
  const std::array<std::int64_t, 1> four{4};
  const std::array<std::int64_t, 1> five{5};
  const std::array<std::int64_t, 1> negative{-4};
  const std::array<std::int64_t, 2> two_ranks{2, 2};

  CHECK_THROWS_AS(transport->all_gather(data, data, five), metro::Bug);
  CHECK_THROWS_AS(transport->all_gather(data, data, negative), metro::Bug);
  CHECK_THROWS_AS(transport->all_gather(data, data, two_ranks), metro::Bug);
  CHECK_THROWS_AS(transport->all_gather({}, data, four), metro::Bug);
  CHECK_THROWS_AS(transport->all_to_all(data, four, {}, no_bytes), metro::Bug);
  CHECK_THROWS_AS(transport->broadcast(data, 1), metro::Bug);
}

TEST_CASE("a single rank agrees with itself, and its errors have no prefix") {
  const auto transport = metro::make_self_transport();
  const auto fail = []() -> std::string { throw metro::Error(ExitCode::input, "a.jsonl line 3: no prompt"); };

  metro::agree(*transport, [] {});
  metro::require_same(*transport, "deck", "text");
  CHECK(metro::from_rank_0(*transport, [] { return std::string("a\0b", 3); }) == std::string("a\0b", 3));
  CHECK_THROWS_AS(metro::agree(*transport, fail), metro::AgreedError);
  CHECK_THROWS_AS(metro::from_rank_0(*transport, fail), metro::AgreedError);
  CHECK_THROWS_WITH(metro::agree(*transport, fail), "a.jsonl line 3: no prompt");
  CHECK_THROWS_WITH(metro::from_rank_0(*transport, fail), "a.jsonl line 3: no prompt");
  expect_error(ExitCode::input, {"line 3"}, [&] { metro::agree(*transport, fail); });
}

TEST_CASE("what is no Error passes through agree unchanged") {
  const auto transport = metro::make_self_transport();
  const auto fail = []() -> std::string { throw std::out_of_range("7"); };

  CHECK_THROWS_AS(metro::agree(*transport, fail), std::out_of_range);
  CHECK_THROWS_AS(metro::from_rank_0(*transport, fail), std::out_of_range);
}

TEST_CASE("a single rank shares memory with itself") {
  const auto transport = metro::make_self_transport();

  const auto memory = transport->allocate_node_memory(10000);
  std::ranges::fill(memory->bytes(), std::byte{9});
  memory->publish();

  CHECK(std::ssize(memory->bytes()) == 10000);
  CHECK(reinterpret_cast<std::uintptr_t>(memory->bytes().data()) % 4096 == 0);
  CHECK(memory->rank_on_node() == 0);
  CHECK(memory->num_ranks_on_node() == 1);
  CHECK(transport->node_memory_room() > std::int64_t{1} << 60);
}
