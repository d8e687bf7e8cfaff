#include "requests/prefix_cache.hpp"

#include "base/error.hpp"
#include "requests/rank_blocks.hpp"

#include <catch2/catch.hpp>

#include <vector>

using metro::BlockWish;
using metro::Bug;
using metro::HeldBlocks;
using metro::PrefixCache;
using metro::RankBlocks;
using Numbers = std::vector<std::int32_t>;

namespace {

// A sequence whose prompt is all it has, but for one block behind it.
HeldBlocks take(RankBlocks& blocks, const Numbers& prompt, std::int32_t form = 0) {
  const auto num_prompt_blocks = static_cast<std::int64_t>(prompt.size()) / 2;
  auto held = blocks.take({.num_blocks = num_prompt_blocks + 1,
                           .form = form,
                           .prefix = prompt,
                           .most_shared = static_cast<std::int64_t>(prompt.size() - 1) / 2});
  REQUIRE(held.has_value());
  return *held;
}

}  // namespace

TEST_CASE("a beginning is found as far as its whole blocks are known") {
  PrefixCache cache(2, 10);
  std::int32_t freed = 0;
  const Numbers tokens{1, 2, 3, 4, 5};
  const auto first = cache.add(0, {}, tokens, 7, freed);
  const auto second = cache.add(0, Numbers{*first}, std::span(tokens).subspan(2), 4, freed);

  CHECK(cache.find(0, tokens) == Numbers{*first, *second});
  CHECK(cache.find(0, Numbers{1, 2, 3}) == Numbers{*first});
  CHECK(cache.find(0, Numbers{1, 2, 4, 3}) == Numbers{*first});
  CHECK(cache.find(0, Numbers{1}).empty());
  CHECK(cache.find(0, Numbers{3, 4}).empty());  // known only behind 1, 2
  CHECK(cache.find(1, tokens).empty());         // of another form
  CHECK(cache.block_of(*first) == 7);
  CHECK(cache.block_of(*second) == 4);
  CHECK(freed == -1);
}

TEST_CASE("a block that is known is not made known again") {
  PrefixCache cache(2, 10);
  std::int32_t freed = 0;
  const auto first = cache.add(0, {}, Numbers{1, 2}, 7, freed);

  CHECK_FALSE(cache.add(0, {}, Numbers{1, 2}, 8, freed).has_value());
  CHECK(cache.add(1, {}, Numbers{1, 2}, 8, freed).has_value());
  CHECK(cache.add(0, Numbers{*first}, Numbers{1, 2}, 9, freed).has_value());
  CHECK(cache.num_entries() == 3);
}

TEST_CASE("entries that nobody uses are forgotten in the order in which they were left, last blocks first") {
  PrefixCache cache(1, 10);
  std::int32_t freed = 0;
  Numbers chain;
  for (const std::int32_t token : {1, 2, 3}) {
    chain.push_back(*cache.add(0, chain, Numbers{token}, 10 * token, freed));
  }
  const Numbers other{*cache.add(0, {}, Numbers{5}, 50, freed)};
  cache.leave(chain);
  cache.leave(other);
  CHECK(cache.num_idle() == 4);
  CHECK(cache.num_idle_among(chain) == 3);
  cache.use(std::span(chain).first(1));  // now its first block is in use again, and left last
  cache.leave(std::span(chain).first(1));

  CHECK(cache.forget_oldest() == 30);
  CHECK(cache.forget_oldest() == 20);
  CHECK(cache.forget_oldest() == 50);
  CHECK(cache.forget_oldest() == 10);
  CHECK(cache.num_entries() == 0);
  CHECK(cache.find(0, Numbers{1, 2, 3}).empty());
  CHECK_THROWS_AS(cache.forget_oldest(), Bug);
}

TEST_CASE("a full cache takes the place of an idle entry, and of one in use never") {
  PrefixCache cache(1, 2);
  std::int32_t freed = 0;
  const Numbers first{*cache.add(0, {}, Numbers{1}, 11, freed)};
  const Numbers second{*cache.add(0, {}, Numbers{2}, 12, freed)};

  CHECK_FALSE(cache.add(0, {}, Numbers{3}, 13, freed).has_value());
  CHECK(freed == -1);
  cache.leave(second);
  CHECK(cache.add(0, {}, Numbers{3}, 13, freed).has_value());
  CHECK(freed == 12);
  CHECK(cache.num_entries() == 2);
  CHECK(cache.find(0, Numbers{1}) == first);
}

TEST_CASE("leaving an entry more often than it was used is a bug") {
  PrefixCache cache(1, 2);
  std::int32_t freed = 0;
  const Numbers entries{*cache.add(0, {}, Numbers{1}, 11, freed)};
  cache.leave(entries);

  CHECK_THROWS_AS(cache.leave(entries), Bug);
  CHECK_THROWS_AS(PrefixCache(0, 1), Bug);
  CHECK_THROWS_AS(PrefixCache(1, 0), Bug);
}

TEST_CASE("a sequence uses the blocks of one that began alike, and its own behind them") {
  RankBlocks blocks(20, 2, 20);
  const HeldBlocks first = take(blocks, {1, 2, 3, 4, 5});
  const HeldBlocks second = take(blocks, {1, 2, 3, 4, 9, 9, 9});
  const HeldBlocks same = take(blocks, {1, 2, 3, 4});
  const HeldBlocks other_form = take(blocks, {1, 2, 3, 4, 5}, 1);

  CHECK(first.blocks == Numbers{0, 1, 2});
  CHECK(first.num_shared == 0);
  CHECK(second.blocks == Numbers{0, 1, 3, 4});
  CHECK(second.num_shared == 2);
  CHECK(same.blocks == Numbers{0, 5, 6});  // its last token is its own to compute
  CHECK(same.num_shared == 1);
  CHECK(other_form.num_shared == 0);
  CHECK(blocks.num_available() == 20 - 3 - 2 - 2 - 3);
}

TEST_CASE("known blocks outlive their sequences until blocks are needed") {
  RankBlocks blocks(6, 2, 20);
  blocks.give_back(take(blocks, {1, 2, 3, 4, 5}));
  CHECK(blocks.num_available() == 6);
  const HeldBlocks again = take(blocks, {1, 2, 3, 4, 5});
  CHECK(again.num_shared == 2);
  blocks.give_back(again);

  const auto large = blocks.take({.num_blocks = 5});

  REQUIRE(large.has_value());
  blocks.give_back(*large);
  CHECK(take(blocks, {1, 2, 3, 4, 5}).num_shared == 1);  // five of six were needed: the last known one went
}

TEST_CASE("blocks are counted once however many sequences use them, and there is room when a sequence fits by that") {
  RankBlocks blocks(5, 2, 20);
  const HeldBlocks first = take(blocks, {1, 2, 3, 4, 5});

  CHECK_FALSE(blocks.take({.num_blocks = 3}).has_value());
  const HeldBlocks second = take(blocks, {1, 2, 3, 4, 6});
  const HeldBlocks third = take(blocks, {1, 2, 3, 4, 7});
  CHECK(blocks.num_available() == 0);
  blocks.give_back(first);
  CHECK(blocks.num_available() == 1);
  blocks.give_back(third);
  blocks.give_back(second);
  CHECK(blocks.num_available() == 5);
  CHECK_THROWS_AS(blocks.give_back(second), Bug);
}

TEST_CASE("a sequence that may leave its prefix holds a second block for each, or shares nothing") {
  RankBlocks blocks(9, 2, 20);
  const Numbers prompt{1, 2, 3, 4, 5};
  const BlockWish wish{.num_blocks = 3, .prefix = prompt, .most_shared = 2, .may_leave = true};
  auto first = blocks.take(wish);
  auto second = blocks.take(wish);
  REQUIRE((first && second));

  CHECK(first->spare.size() == 2);
  CHECK(second->num_shared == 2);
  CHECK(blocks.num_available() == 9 - 5 - 3);
  CHECK_FALSE(blocks.take(wish).has_value());
  const Numbers before = first->blocks;
  const Numbers spare = first->spare;
  blocks.leave_prefix(*first);
  CHECK(first->blocks == Numbers{spare[0], spare[1], before[2]});
  CHECK(second->blocks[0] == before[0]);
  blocks.give_back(*second);
  CHECK(blocks.num_available() == 6);
  blocks.give_back(*first);
  CHECK(blocks.num_available() == 9);

  RankBlocks small(3, 2, 20);
  const auto alone = small.take(wish);
  REQUIRE(alone.has_value());
  CHECK(alone->prefix_entries.empty());
  CHECK(alone->spare.empty());
}

TEST_CASE("with no entries allowed sequences share nothing") {
  RankBlocks blocks(9, 2, 0);

  take(blocks, {1, 2, 3, 4, 5});

  CHECK(take(blocks, {1, 2, 3, 4, 5}).num_shared == 0);
  CHECK(blocks.num_available() == 3);
}
