// TOML decks, and one override of the command line behind the first NUL byte.
#include "deck/deck.hpp"
#include "fuzz/fuzz_target.hpp"

#include <vector>

int metro::fuzz::fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = as_text(data, size);
  const std::size_t end = input.find('\0');
  std::vector<std::string> overrides;
  if (end != input.npos) {
    overrides.emplace_back(input.substr(end + 1));
  }
  expect_error_at_most([&] {
    const Deck deck = parse_deck(std::string(input.substr(0, end)), "deck.toml", overrides);
    parse_deck(deck_to_toml(deck), "resolved deck", {});
  });
  return 0;
}
