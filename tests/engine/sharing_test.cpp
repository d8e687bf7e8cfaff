// The rule by which ranks of a node share what all of them need.
#include "engine/sharing.hpp"

#include <catch2/catch.hpp>

using metro::choose_sharing;
using metro::Sharing;
using metro::SharingChoice;
using metro::SharingFacts;

namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

// Two nodes of two ranks, 8 GiB for each rank, plenty of room to share.
SharingFacts facts_of(std::int64_t num_bytes) {
  return {.num_bytes = num_bytes,
          .rank_to_node = {0, 0, 1, 1},
          .free_of_rank = {8 * gib, 8 * gib, 8 * gib, 8 * gib},
          .room_for_rank = {12 * gib, 12 * gib, 12 * gib, 12 * gib}};
}

void check(const SharingChoice& choice, Sharing sharing, const char* reason) {
  CHECK(choice.sharing == sharing);
  CHECK_THAT(choice.reason, Catch::Matchers::Contains(reason));
}

}  // namespace

TEST_CASE("auto shares where the copies of a node would take more than a quarter of its free memory") {
  check(choose_sharing("auto", facts_of(2 * gib)), Sharing::per_rank, "less than 1/4");
  check(choose_sharing("auto", facts_of(2 * gib + 1)), Sharing::per_node, "more than 1/4");

  SharingFacts tight = facts_of(2 * gib);
  tight.free_of_rank[3] = 7 * gib;
  check(choose_sharing("auto", tight), Sharing::per_node, "more than 1/4");
}

TEST_CASE("a rank that is alone on its node shares with nobody") {
  SharingFacts facts = facts_of(7 * gib);
  facts.rank_to_node = {0, 1, 2, 3};

  check(choose_sharing("auto", facts), Sharing::per_rank, "one rank");
  check(choose_sharing("node", facts), Sharing::per_rank, "one rank");
}

TEST_CASE("the deck decides where it says node or rank") {
  check(choose_sharing("node", facts_of(1)), Sharing::per_node, "model.sharing = \"node\"");
  check(choose_sharing("rank", facts_of(7 * gib)), Sharing::per_rank, "model.sharing = \"rank\"");
}

TEST_CASE("without room on one of the nodes each rank has its own copy, and the reason is told") {
  SharingFacts facts = facts_of(3 * gib);
  facts.room_for_rank[2] = 3 * gib;  // nothing to spare for MPI
  facts.room_for_rank[3] = 3 * gib;

  check(choose_sharing("node", facts), Sharing::per_rank, "node 1 has only 2.9 GiB of shared memory (/dev/shm)");
  check(choose_sharing("auto", facts), Sharing::per_rank, "node 1 has only");
  facts.room_for_rank[2] = 0;
  check(choose_sharing("node", facts), Sharing::per_rank, "node 1 has only 0 B");
}

TEST_CASE("the ranks of a node are counted for each of its ranks, in whatever order they come") {
  CHECK(metro::ranks_on_same_node(std::vector<std::int64_t>{0, 0, 1, 0, 2}) ==
        std::vector<std::int64_t>{3, 3, 1, 3, 1});
  CHECK(metro::ranks_on_same_node(std::vector<std::int64_t>{}).empty());
}

TEST_CASE("weights in the memory of devices are never shared, whatever the deck wishes") {
  SharingFacts facts = facts_of(7 * gib);
  facts.in_host_memory = false;

  check(choose_sharing("auto", facts), Sharing::per_rank, "devices do not share memory");
  check(choose_sharing("node", facts), Sharing::per_rank, "devices do not share memory");
}
