// requests.date: which text is one, and what is refused.
#include "deck/date.hpp"

#include "deck/deck.hpp"
#include "deck/deck_text.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

using metro::ExitCode;
using metro::is_date;
using metro::parse_deck;
using metro::test::expect_error;
using metro::test::least_deck;

TEST_CASE("a date is a day of the calendar, maybe with a time of that day") {
  for (const char* text :
       {"2026-11-30", "2024-02-29", "2000-02-29", "9999-12-31", "2026-11-30 00:00:00", "2026-11-30 23:59:59"}) {
    CAPTURE(text);
    CHECK(is_date(text));
  }
}

TEST_CASE("whatever is no day of the calendar is no date") {
  for (const char* text : {"", "2026", "2026-11", "2026-11-31", "2025-02-29", "1900-02-29", "2026-13-01", "2026-00-10",
                           "2026-11-00", "0999-01-01", "26-11-30", "2026/11/30", "2026-11-30 ", "2026-11-30T00:00:00",
                           "2026-11-30 24:00:00", "2026-11-30 00:60:00", "2026-11-30 00:00:60", "2026-1-1", "today"}) {
    CAPTURE(text);
    CHECK_FALSE(is_date(text));
  }
}

TEST_CASE("a deck has no date of its own, on the command line one needs no quotes") {
  CHECK(parse_deck(least_deck(), "deck.toml", {}).requests.date.empty());
  CHECK(parse_deck(least_deck(), "deck.toml", {"requests.date=2026-11-30"}).requests.date == "2026-11-30");
  CHECK(parse_deck(least_deck(), "deck.toml", {"requests.date=2026-11-30 12:00:00"}).requests.date ==
        "2026-11-30 12:00:00");
  CHECK(parse_deck(least_deck(), "deck.toml", {"requests.date=''"}).requests.date.empty());
}

TEST_CASE("a date that does not exist is refused with what is allowed") {
  expect_error(ExitCode::usage,
               {"override 'requests.date=today': ",
                "requests.date = today: must be a day \"YYYY-MM-DD\", a time \"YYYY-MM-DD hh:mm:ss\" or \"\""},
               [] { parse_deck(least_deck(), "deck.toml", {"requests.date=today"}); });
  expect_error(ExitCode::usage, {"deck.toml:5: requests.date = 2026-11-30: must be a day", "not a date"}, [] {
    parse_deck("model.checkpoint = \"m\"\noutput.directory = \"o\"\n[requests]\ninput = \"i\"\ndate = 2026-11-30\n",
               "deck.toml", {});
  });
}
