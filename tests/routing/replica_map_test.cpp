#include "routing/replica_map.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>

using metro::ReplicaMap;
using Ids = std::vector<std::int32_t>;

namespace {

Ids to_ids(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("slots and hosts of an expert are ascending and a rank is named once") {
  const Ids slot_to_expert{2, 0, 2, /**/ 1, -1, -1, /**/ 2, 0, 0};

  const ReplicaMap map(slot_to_expert, 3, 3);

  CHECK(map.slots_per_rank() == 3);
  CHECK(map.num_slots() == 9);
  CHECK(to_ids(map.slots_of(0)) == Ids{1, 7, 8});
  CHECK(to_ids(map.hosts_of(0)) == Ids{0, 2});
  CHECK(to_ids(map.slots_of(1)) == Ids{3});
  CHECK(to_ids(map.hosts_of(1)) == Ids{1});
  CHECK(to_ids(map.slots_of(2)) == Ids{0, 2, 6});
  CHECK(to_ids(map.hosts_of(2)) == Ids{0, 2});
}

TEST_CASE("the host mask has one bit per host, also above 64 ranks") {
  Ids slot_to_expert(130, 1);
  slot_to_expert[0] = 0;
  slot_to_expert[63] = 0;
  slot_to_expert[64] = 0;
  slot_to_expert[129] = 0;

  const ReplicaMap map(slot_to_expert, 2, 130);

  REQUIRE(map.num_mask_words() == 3);
  CHECK(map.host_mask_of(0)[0] == 0x8000000000000001U);
  CHECK(map.host_mask_of(0)[1] == 1);
  CHECK(map.host_mask_of(0)[2] == 2);
  CHECK(map.host_mask_of(1)[2] == 1);
}

TEST_CASE("scarce experts come first, then the lower id, two slots on one rank are one host") {
  const Ids slot_to_expert{0, 0, /**/ 1, 2, /**/ 1, 3, /**/ 1, 2};

  const ReplicaMap map(slot_to_expert, 4, 4);

  CHECK(to_ids(map.experts_by_scarcity()) == Ids{0, 3, 2, 1});
}

TEST_CASE("ranks may hold nothing at all") {
  const Ids slot_to_expert{-1, 1, -1, 0, -1};

  const ReplicaMap map(slot_to_expert, 2, 5);

  CHECK(to_ids(map.hosts_of(0)) == Ids{3});
  CHECK(to_ids(map.hosts_of(1)) == Ids{1});
}

TEST_CASE("a table that no placement can have is a bug") {
  CHECK_THROWS_AS(ReplicaMap(Ids{0, 1, 0}, 2, 2), metro::Bug);  // slots do not divide over the ranks
  CHECK_THROWS_AS(ReplicaMap(Ids{0, 0}, 2, 2), metro::Bug);     // expert 1 has no slot
  CHECK_THROWS_AS(ReplicaMap(Ids{0, 2}, 2, 2), metro::Bug);     // no such expert
  CHECK_THROWS_AS(ReplicaMap(Ids{0, -2}, 1, 2), metro::Bug);    // no such mark
  CHECK_THROWS_AS(ReplicaMap(Ids{}, 1, 1), metro::Bug);         // no slot at all
}
