#include "base/error.hpp"
#include "routing/activated_slots.hpp"
#include "routing/instances.hpp"
#include "routing/policy.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

using metro::ReplicaMap;
using Ids = std::vector<std::int32_t>;

namespace {

Ids route_even(const ReplicaMap& map, const Ids& expert_ids, std::int64_t start) {
  Ids occurrences(static_cast<std::size_t>(map.num_experts()), 1234);
  Ids slots(expert_ids.size(), 1234);
  metro::route_even(map, expert_ids, start, occurrences, slots);
  return slots;
}

// Expert 0 in slots 0, 3, 5; expert 1 in slots 1, 4; expert 2 in slot 2.
const ReplicaMap& small_map() {
  static const ReplicaMap map(Ids{0, 1, 2, 0, 1, 0}, 3, 2);
  return map;
}

}  // namespace

TEST_CASE("even sends the n-th occurrence of an expert to its replica n mod count") {
  CHECK(route_even(small_map(), {0, 1, 0, 2, 0, 1, 0, 2, 1}, 0) == Ids{0, 1, 3, 2, 5, 4, 0, 2, 1});
}

TEST_CASE("even starts at the given replica") {
  CHECK(route_even(small_map(), {0, 0, 0, 1, 1, 2}, 1) == Ids{3, 5, 0, 4, 1, 2});
  CHECK(route_even(small_map(), {0, 0, 0, 1, 1, 2}, 7) == Ids{3, 5, 0, 4, 1, 2});
  CHECK(route_even(small_map(), {0, 1, 2}, 1023) == Ids{0, 4, 2});
}

TEST_CASE("even gives an id that is no expert no slot and does not count it") {
  CHECK(route_even(small_map(), {0, -1, 0, 3, 0, 2147483647, 0, -2147483648}, 0) == Ids{0, -1, 3, -1, 5, -1, 0, -1});
}

TEST_CASE("padding at the end changes nothing before it") {
  std::mt19937_64 random(5);
  Ids expert_ids(40);
  std::generate(expert_ids.begin(), expert_ids.end(), [&] { return static_cast<std::int32_t>(random() % 3); });
  Ids padded = expert_ids;
  padded.resize(64, -1);

  const Ids slots = route_even(small_map(), expert_ids, 0);
  const Ids padded_slots = route_even(small_map(), padded, 0);

  CHECK(std::equal(slots.begin(), slots.end(), padded_slots.begin()));
  CHECK(metro::test::activated_slots(small_map(), padded_slots) == metro::test::activated_slots(small_map(), slots));
}

TEST_CASE("even spreads an expert's rows over its replicas to within one") {
  std::mt19937_64 random(6);
  const auto instance = metro::test::random_instance({32, 4, 12}, 0.0, 1.0, random);
  const ReplicaMap map(instance.slot_to_expert, 32, 4);
  Ids expert_ids(2000);
  std::generate(expert_ids.begin(), expert_ids.end(), [&] { return static_cast<std::int32_t>(random() % 32); });

  const Ids slots = route_even(map, expert_ids, 3);

  std::map<std::int32_t, std::int64_t> rows_of_slot;
  for (std::size_t idx = 0; idx < slots.size(); ++idx) {
    REQUIRE(instance.slot_to_expert[static_cast<std::size_t>(slots[idx])] == expert_ids[idx]);
    ++rows_of_slot[slots[idx]];
  }
  for (std::int64_t expert = 0; expert < 32; ++expert) {
    const auto own = map.slots_of(expert);
    const auto [fewest, most] =
        std::minmax_element(own.begin(), own.end(), [&](auto a, auto b) { return rows_of_slot[a] < rows_of_slot[b]; });
    CHECK(rows_of_slot[*most] - rows_of_slot[*fewest] <= 1);
  }
}

TEST_CASE("even of no rows writes nothing") {
  CHECK(route_even(small_map(), {}, 0).empty());
  CHECK(metro::test::activated_slots(small_map(), Ids{}) == Ids{0, 0});
}

TEST_CASE("a replica in use counts once on its rank, and two replicas on one rank count twice") {
  const ReplicaMap map(Ids{0, 0, 1, /**/ 0, 1, 1}, 2, 2);

  CHECK(metro::test::activated_slots(map, Ids{0, 1, 1, 0, -1, 5, 5}) == Ids{2, 1});
}

TEST_CASE("a negative start, arrays of the wrong length and slots that do not exist are bugs") {
  Ids three(3);
  Ids two(2);

  CHECK_THROWS_AS(metro::route_even(small_map(), three, -1, three, three), metro::Bug);
  CHECK_THROWS_AS(metro::route_even(small_map(), three, 0, two, three), metro::Bug);
  CHECK_THROWS_AS(metro::route_even(small_map(), three, 0, three, two), metro::Bug);
  CHECK_THROWS_AS(metro::test::activated_slots(small_map(), Ids{6}), metro::Bug);
  CHECK_THROWS_AS(metro::test::activated_slots(small_map(), Ids{-2}), metro::Bug);
}
