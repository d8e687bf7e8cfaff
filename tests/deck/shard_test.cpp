// requests.shard: which text is one, and what is refused.
#include "deck/deck.hpp"
#include "deck/deck_text.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <string>

using metro::ExitCode;
using metro::parse_deck;
using metro::Shard;
using metro::shard_of;
using metro::test::expect_error;
using metro::test::least_deck;

TEST_CASE("a shard is a number from 0 and how many there are") {
  CHECK(shard_of("0/1") == Shard{0, 1});
  CHECK(shard_of("2/8") == Shard{2, 8});
  CHECK(shard_of("65535/65536") == Shard{65535, 65536});
  CHECK(metro::text_of(Shard{2, 8}) == "2/8");
}

TEST_CASE("whatever is not i/n with i below n is no shard") {
  for (const char* text : {"", "/", "2", "2/", "/8", "8/8", "9/8", "0/0", "-1/8", "+1/8", "1/-8", " 1/8", "1/8 ",
                           "1 /8", "1/8/9", "1.0/8", "a/8", "0/65537", "1/99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(shard_of(text).has_value());
  }
}

TEST_CASE("a deck without a shard is answered whole, on the command line a shard needs no quotes") {
  CHECK(parse_deck(least_deck(), "deck.toml", {}).requests.shard == Shard{0, 1});
  CHECK(parse_deck(least_deck(), "deck.toml", {"requests.shard=3/4"}).requests.shard == Shard{3, 4});
  CHECK(parse_deck(metro::deck_to_toml(parse_deck(least_deck(), "deck.toml", {"requests.shard='3/4'"})), "again", {})
            .requests.shard == Shard{3, 4});
}

TEST_CASE("a shard out of range is refused with what is allowed") {
  expect_error(ExitCode::usage,
               {"override 'requests.shard=8/8': ",
                "requests.shard = 8/8: must be \"i/n\" with i from 0 to n - 1 and n "
                "from 1 to 65536"},
               [] { parse_deck(least_deck(), "deck.toml", {"requests.shard=8/8"}); });
  expect_error(ExitCode::usage, {"deck.toml:", "requests.shard = 2: must be \"i/n\"", "not a whole number"}, [] {
    parse_deck("model.checkpoint = \"m\"\noutput.directory = \"o\"\n[requests]\ninput = \"i\"\nshard = 2\n",
               "deck.toml", {});
  });
}
