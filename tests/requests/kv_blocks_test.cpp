#include "requests/kv_blocks.hpp"

#include "base/error.hpp"

#include <catch2/catch.hpp>

using metro::Bug;
using metro::KvBlocks;
using Numbers = std::vector<std::int32_t>;

TEST_CASE("the lowest free KV blocks are taken first") {
  KvBlocks blocks(6);

  CHECK(blocks.take(4) == Numbers{0, 1, 2, 3});
  blocks.give_back(Numbers{2, 0});

  CHECK(blocks.num_free() == 4);
  CHECK(blocks.take(3) == Numbers{0, 2, 4});
  CHECK(blocks.take(0).empty());
  CHECK(blocks.take(1) == Numbers{5});
  CHECK(blocks.num_free() == 0);
}

TEST_CASE("taking more KV blocks than are free, or giving back what is not taken, is a bug") {
  KvBlocks blocks(3);
  blocks.take(2);

  CHECK_THROWS_AS(blocks.take(2), Bug);
  CHECK_THROWS_AS(blocks.give_back(Numbers{2}), Bug);
  CHECK_THROWS_AS(blocks.give_back(Numbers{-1}), Bug);
  CHECK_THROWS_AS(blocks.give_back(Numbers{1, 1}), Bug);
  CHECK_THROWS_AS(KvBlocks(0), Bug);
}
