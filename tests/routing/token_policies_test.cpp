// The policies after vLLM and SGLang: their arithmetic, as the systems' own records and closed forms give it.
#include "routing/token_policies.hpp"
#include "base/error.hpp"
#include "routing/replica_map.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <set>

using metro::ReplicaMap;
using Ids = std::vector<std::int32_t>;

namespace {

// One expert with `count` replicas, replica i in slot i.
ReplicaMap replicas(std::int64_t count) {
  return ReplicaMap(Ids(static_cast<std::size_t>(count), 0), 1, count);
}

// How many of the rows go to each replica of the one expert; top_k is 1 and `rows` are the rows that choose it.
template <class Route>
std::vector<int> hits(std::int64_t count, const std::vector<std::int32_t>& rows, Route route) {
  const ReplicaMap map = replicas(count);
  Ids ids(static_cast<std::size_t>(1 + *std::max_element(rows.begin(), rows.end())), -1);
  for (const std::int32_t row : rows) {
    ids[static_cast<std::size_t>(row)] = 0;
  }
  Ids slots(ids.size(), 1234);
  route(map, ids, slots);
  std::vector<int> hits(static_cast<std::size_t>(count), 0);
  for (const std::int32_t slot : slots) {
    if (slot >= 0) {
      ++hits[static_cast<std::size_t>(slot)];
    }
  }
  return hits;
}

void modulo(const ReplicaMap& map, const Ids& ids, Ids& slots) {
  metro::route_vllm_modulo(map, ids, slots);
}
void knuth(const ReplicaMap& map, const Ids& ids, Ids& slots) {
  metro::route_vllm_knuth(map, ids, 1, slots);
}
void at_random(const ReplicaMap& map, const Ids& ids, Ids& slots) {
  metro::route_vllm_random(map, ids, 1, metro::random_routing_key(1, 2, 3), 0, slots);
}

std::vector<std::int32_t> every(std::int32_t step, std::int32_t end) {
  std::vector<std::int32_t> rows;
  for (std::int32_t row = 0; row < end; row += step) {
    rows.push_back(row);
  }
  return rows;
}

// Ranks 0 and 1 are node 0, ranks 2 and 3 node 1. Expert 0: slots 0 (rank 0), 2 (rank 1), 4 (rank 2); expert 1: slots
// 5 (rank 2), 6 (rank 3), 7 (rank 3); expert 2: slots 1 (rank 0), 3 (rank 1).
const ReplicaMap& two_nodes() {
  static const ReplicaMap map(Ids{0, 2, /**/ 0, 2, /**/ 0, 1, /**/ 1, 1}, 3, 4);
  return map;
}
constexpr std::array<std::int32_t, 4> rank_to_node{0, 0, 1, 1};

}  // namespace

TEST_CASE("vllm-modulo with eight choices and two replicas looks at the column only") {
  const ReplicaMap map(Ids{0, 1, 2, 3, 4, 5, 6, 7, /**/ 0, 1, 2, 3, 4, 5, 6, 7}, 8, 2);
  Ids ids;
  for (std::int32_t row = 0; row < 50; ++row) {
    for (std::int32_t column = 0; column < 8; ++column) {
      ids.push_back((row + column) % 8);
    }
  }
  Ids slots(ids.size());

  metro::route_vllm_modulo(map, ids, slots);

  for (std::size_t position = 0; position < slots.size(); ++position) {
    CHECK(slots[position] / 8 == static_cast<std::int32_t>(position % 2));
  }
}

TEST_CASE("every fourth row to one of four replicas: modulo and knuth use a single replica, random all of them") {
  CHECK(hits(4, every(4, 4096), modulo) == std::vector{1024, 0, 0, 0});
  CHECK(hits(4, every(4, 4096), knuth) == std::vector{1024, 0, 0, 0});
  for (const int number : hits(4, every(4, 4096), at_random)) {
    CHECK(number > 230);
    CHECK(number < 282);
  }
}

TEST_CASE("knuth spreads every fourth row over three replicas, and all rows over four") {
  CHECK(hits(3, every(4, 4096), knuth) == std::vector{342, 342, 340});
  CHECK(hits(4, every(1, 4096), knuth) == std::vector{1024, 1024, 1024, 1024});
}

TEST_CASE("random spreads any rows evenly over any number of replicas") {
  const std::int64_t count = GENERATE(2, 3, 5, 8);
  const std::int32_t step = GENERATE(1, 2, 3, 8);
  const std::vector<std::int32_t> rows = every(step, 16000 * step);

  for (const int number : hits(count, rows, at_random)) {
    // 16000 draws: within about 4 standard deviations.
    CHECK(number > 16000 / count - 250);
    CHECK(number < 16000 / count + 250);
  }
}

TEST_CASE("random depends on seed, step, layer, row and column") {
  const ReplicaMap map = replicas(1000);
  std::set<std::int32_t> chosen;
  for (const std::uint64_t key : {metro::random_routing_key(1, 2, 3), metro::random_routing_key(2, 2, 3),
                                  metro::random_routing_key(1, 3, 3), metro::random_routing_key(1, 2, 4)}) {
    Ids slots(4);
    metro::route_vllm_random(map, Ids{0, 0, 0, 0}, 2, key, 0, slots);
    chosen.insert(slots.begin(), slots.end());
  }

  CHECK(chosen.size() == 16);
  Ids slots(4);
  Ids later(2);
  metro::route_vllm_random(map, Ids{0, 0, 0, 0}, 2, 77, 10, slots);
  metro::route_vllm_random(map, Ids{0, 0}, 2, 77, 11, later);
  CHECK(later == Ids{slots[2], slots[3]});
}

TEST_CASE("static takes the own rank's replica, else one on the node, else any, and always the same") {
  // Rows of ranks 0..3, each with experts 0, 1, 2, twice.
  const Ids ids{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
  const Ids row_to_rank{0, 0, 1, 1, 2, 2, 3, 3};
  Ids slots(ids.size());

  metro::route_static(two_nodes(), ids, 3, {row_to_rank, rank_to_node}, slots);

  CHECK(slots[0] == 0);                                      // rank 0, expert 0: own
  CHECK(slots[6] == 2);                                      // rank 1, expert 0: own
  CHECK(slots[12] == 4);                                     // rank 2: own
  CHECK(slots[18] == 4);                                     // rank 3: on its node there is only this one
  CHECK(slots[13] == 5);                                     // rank 2, expert 1: own
  CHECK(slots[19] == 6);                                     // rank 3, expert 1: the lower of its own two
  CHECK((slots[1] == 5 || slots[1] == 6 || slots[1] == 7));  // rank 0, expert 1: the other node has all
  CHECK((slots[14] == 1 || slots[14] == 3));                 // rank 2, expert 2: likewise
  for (std::size_t row = 0; row < 8; row += 2) {
    CHECK(std::equal(slots.begin() + static_cast<std::ptrdiff_t>(row) * 3,
                     slots.begin() + static_cast<std::ptrdiff_t>(row + 1) * 3,
                     slots.begin() + static_cast<std::ptrdiff_t>(row + 1) * 3));
  }
}

TEST_CASE("static spreads ranks over the replicas of an expert that none of them holds") {
  // Expert 0 in the slots of ranks 0..3; rows come from ranks 4..1003.
  Ids slot_to_expert(1004, -1);
  std::fill_n(slot_to_expert.begin(), 4, 0);
  const ReplicaMap map(slot_to_expert, 1, 1004);
  Ids row_to_rank;
  for (std::int32_t rank = 4; rank < 1004; ++rank) {
    row_to_rank.push_back(rank);
  }
  Ids slots(1000);

  metro::route_static(map, Ids(1000, 0), 1, {row_to_rank, Ids(1004, 0)}, slots);

  for (std::int32_t slot = 0; slot < 4; ++slot) {
    CHECK(std::abs(std::count(slots.begin(), slots.end(), slot) - 250) < 60);
  }
}

TEST_CASE("local takes the own rank's replica, else those on the node in turn, else all in turn") {
  const Ids ids{1, 1, 1, 1, /**/ 2, 2, 2, 1};
  const Ids row_to_rank{0, 0, 1, 1, 2, 2, 3, 3};
  Ids slots(ids.size());
  Ids occurrences(3, 1234);

  metro::route_local(two_nodes(), ids, 1, {row_to_rank, rank_to_node}, 0, occurrences, slots);
  CHECK(slots == Ids{5, 6, 7, 5, /**/ 1, 3, 1, 6});

  metro::route_local(two_nodes(), ids, 1, {row_to_rank, rank_to_node}, 1, occurrences, slots);
  CHECK(slots == Ids{6, 7, 5, 6, /**/ 3, 1, 3, 6});

  // Expert 0 for ranks of a node with two hosts: own first; from a node with one host: that one.
  metro::route_local(two_nodes(), Ids{0, 0, 0, 0, 0, 0, 0, 0}, 1, {row_to_rank, rank_to_node}, 0, occurrences, slots);
  CHECK(slots == Ids{0, 0, 2, 2, 4, 4, 4, 4});
}

TEST_CASE("local takes turns among several replicas on the node") {
  // Expert 0 on ranks 0 and 1; ranks 2 and 3 of the same node hold nothing of it.
  const ReplicaMap map(Ids{0, 0, 1, 1}, 2, 4);
  Ids slots(4);
  Ids occurrences(2);

  metro::route_local(map, Ids{0, 0, 0, 0}, 1, {Ids{2, 2, 3, 3}, Ids{0, 0, 0, 0}}, 0, occurrences, slots);

  CHECK(slots == Ids{0, 1, 0, 1});
}

TEST_CASE("sources that do not fit the rows are bugs") {
  Ids slots(2);
  Ids occurrences(3);

  CHECK_THROWS_AS(metro::route_static(two_nodes(), Ids{0, 1}, 1, {Ids{0}, rank_to_node}, slots), metro::Bug);
  CHECK_THROWS_AS(metro::route_static(two_nodes(), Ids{0, 1}, 1, {Ids{0, 4}, rank_to_node}, slots), metro::Bug);
  CHECK_THROWS_AS(metro::route_static(two_nodes(), Ids{0, 1}, 1, {Ids{0, 0}, Ids{0}}, slots), metro::Bug);
  CHECK_THROWS_AS(metro::route_local(two_nodes(), Ids{0, 1}, 1, {Ids{0, 0}, rank_to_node}, -1, occurrences, slots),
                  metro::Bug);
  CHECK_THROWS_AS(metro::route_vllm_knuth(two_nodes(), Ids{0, 1, 2}, 2, slots), metro::Bug);
  CHECK_THROWS_AS(metro::route_vllm_modulo(two_nodes(), Ids{0, 1, 2}, slots), metro::Bug);
}
