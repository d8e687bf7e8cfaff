// Every rule by which the pretended ranks of a job send something.
#include "transport/pretend_transport.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "transport/agree.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using metro::PretendedJob;

namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("without a rule every pretended rank gathers a copy of this rank's message") {
  const auto transport = metro::make_pretend_transport({.size = 3, .rank = 1});
  const std::vector<std::byte> sent = bytes_of("abc");
  std::vector<std::byte> gathered(9);

  transport->all_gather(sent, gathered, std::array<std::int64_t, 3>{3, 3, 3});

  CHECK(text_of(gathered) == "abcabcabc");
  CHECK(transport->rank() == 1);
  CHECK(transport->size() == 3);
  CHECK(transport->name() == "pretend");
  CHECK(transport->bytes_sent() == 6);
}

TEST_CASE("without a rule every pretended rank sends what this rank sends to itself") {
  const auto transport = metro::make_pretend_transport({.size = 3, .rank = 1});
  const std::vector<std::byte> sent = bytes_of("0own22");
  std::vector<std::byte> received(9);

  transport->all_to_all(sent, std::array<std::int64_t, 3>{1, 3, 2}, received, std::array<std::int64_t, 3>{3, 3, 3});

  CHECK(text_of(received) == "ownownown");
  CHECK(transport->bytes_sent() == 3);
}

TEST_CASE("rules write the messages of the other ranks and see phase, sender and this rank's message") {
  std::vector<std::string> calls;
  const auto rule = [&](const char* phase, std::int64_t from, std::span<const std::byte> own,
                        std::span<std::byte> message) {
    calls.push_back(std::string(phase) + " " + std::to_string(from) + " " + text_of(own));
    std::ranges::fill(message, static_cast<std::byte>('0' + from));
  };
  const auto transport = metro::make_pretend_transport({.size = 3, .rank = 2, .gathered = rule, .exchanged = rule});
  const std::vector<std::byte> own = bytes_of("me");
  const std::vector<std::byte> to_all = bytes_of("abcme");
  std::vector<std::byte> gathered(7);
  std::vector<std::byte> received(5);

  transport->set_phase("one");
  transport->all_gather(own, gathered, std::array<std::int64_t, 3>{1, 4, 2});
  transport->set_phase("two");
  transport->all_to_all(to_all, std::array<std::int64_t, 3>{1, 2, 2}, received, std::array<std::int64_t, 3>{0, 3, 2});

  CHECK(text_of(gathered) == "01111me");
  CHECK(text_of(received) == "111me");
  CHECK(calls == std::vector<std::string>{"one 0 me", "one 1 me", "two 0 me", "two 1 me"});
}

TEST_CASE("a message that no rule can make up is a bug that names sender, sizes and phase") {
  const auto transport = metro::make_pretend_transport({.size = 2, .rank = 0});
  const std::vector<std::byte> sent = bytes_of("ab");
  std::vector<std::byte> received(5);
  transport->set_phase("dispatch");

  CHECK_THROWS_WITH(transport->all_gather(sent, received, std::array<std::int64_t, 2>{2, 3}),
                    Catch::Contains("no rule for 3 bytes from rank 1 in dispatch: this rank sends 2"));
  CHECK_THROWS_WITH(transport->broadcast(received, 1),
                    Catch::Contains("no rule for what rank 1 broadcasts in dispatch"));
  CHECK_THROWS_AS(transport->all_gather(sent, received, std::array<std::int64_t, 2>{3, 2}), metro::Bug);
  CHECK_THROWS_AS(transport->broadcast(received, 2), metro::Bug);
}

TEST_CASE("reductions are those of ranks with equal values") {
  const auto transport = metro::make_pretend_transport({.size = 1024, .rank = 500});
  std::array<std::int64_t, 2> maxima{3, -7};
  std::array<std::int64_t, 2> sums{3, -7};
  std::array<std::int64_t, 1> too_large{std::int64_t{1} << 60};

  transport->all_reduce_max(maxima);
  transport->all_reduce_sum(sums);
  transport->barrier();

  CHECK(maxima == std::array<std::int64_t, 2>{3, -7});
  CHECK(sums == std::array<std::int64_t, 2>{3072, -7168});
  CHECK(transport->bytes_sent() == 2 * 16 * 1023);
  CHECK_THROWS_AS(transport->all_reduce_sum(too_large), metro::Bug);
}

TEST_CASE("a broadcast keeps what this rank sends and asks the rule for what another one does") {
  PretendedJob job{.size = 4, .rank = 3};
  job.broadcast = [](const char* phase, std::int64_t root, std::span<std::byte> data) {
    const std::string text = std::string(phase) + std::to_string(root);
    std::memcpy(data.data(), text.data(), data.size());
  };
  const auto transport = metro::make_pretend_transport(std::move(job));
  std::vector<std::byte> own = bytes_of("mine");
  std::vector<std::byte> other(6);
  transport->set_phase("load");

  transport->broadcast(own, 3);
  transport->broadcast(std::span(other).first(5), 1);

  CHECK(text_of(own) == "mine");
  CHECK(text_of(std::span(other).first(5)) == "load1");
  CHECK(transport->bytes_sent() == 12);
}

TEST_CASE("memory of a pretended node is zero and knows this rank's place in it") {
  const auto middle = metro::make_pretend_transport({.size = 10, .rank = 5, .ranks_per_node = 4});
  const auto last = metro::make_pretend_transport({.size = 10, .rank = 9, .ranks_per_node = 4});

  const auto memory = middle->allocate_node_memory(5000);
  const auto memory_of_last = last->allocate_node_memory(1);

  CHECK(std::ranges::all_of(memory->bytes(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(std::ssize(memory->bytes()) == 5000);
  CHECK(memory->rank_on_node() == 1);
  CHECK(memory->num_ranks_on_node() == 4);
  CHECK(memory_of_last->rank_on_node() == 1);
  CHECK(memory_of_last->num_ranks_on_node() == 2);
  CHECK(middle->node_memory_room() > 0);
}

TEST_CASE("pretended ranks agree on values and errors with the rank that this process is") {
  const auto first = metro::make_pretend_transport({.size = 1024, .rank = 0});
  const auto last = metro::make_pretend_transport({.size = 1024, .rank = 1023});
  const auto fail = [] { throw metro::Error(metro::ExitCode::usage, "no such key"); };

  CHECK(metro::from_rank_0(*first, [] { return std::string("placement"); }) == "placement");
  CHECK(metro::gather_integers(*last, 7) == std::vector<std::int64_t>(1024, 7));
  CHECK(metro::any_rank(*last, true));
  metro::require_same(*last, "deck", "text");
  metro::agree(*last, [] {});
  CHECK_THROWS_AS(metro::agree(*last, fail), metro::AgreedError);
  metro::test::expect_error(metro::ExitCode::usage, {"no such key"}, [&] { metro::agree(*last, fail); });
}

TEST_CASE("a pretended job has a size and a rank within it") {
  CHECK_THROWS_AS(metro::make_pretend_transport({.size = 0}), metro::Bug);
  CHECK_THROWS_AS(metro::make_pretend_transport({.size = 4, .rank = 4}), metro::Bug);
  CHECK_THROWS_AS(metro::make_pretend_transport({.size = 4, .rank = 0, .ranks_per_node = 0}), metro::Bug);
}
