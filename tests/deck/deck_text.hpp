// The least text that is a deck, for tests that add one thing to it.
#pragma once

#include <string>

namespace metro::test {

// Seven lines, so what follows begins on line 8.
inline std::string least_deck(const std::string& rest = "") {
  return "[model]\n"
         "checkpoint = \"tiny.h5\"\n"
         "[requests]\n"
         "input = \"prompts.jsonl\"\n"
         "[output]\n"
         "directory = \"results\"\n"
         "# the rest of the deck\n" +
         rest;
}

}  // namespace metro::test
