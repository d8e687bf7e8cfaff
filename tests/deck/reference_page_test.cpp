#include "base/file.hpp"
#include "deck/deck.hpp"
#include "deck/parameters.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

using Catch::Matchers::Contains;

TEST_CASE("docs/parameters.md is what the program prints") {
  const std::string page = metro::read_file(METRO_SOURCE_DIR "/docs/parameters.md", metro::ExitCode::usage);

  INFO("docs/parameters.md is out of date; regenerate with `metro parameters > docs/parameters.md`");
  CHECK(page == metro::parameters_page());
}

TEST_CASE("page, help and resolved deck show every parameter") {
  const metro::Deck deck = metro::parse_deck("", "", {"model.checkpoint=a", "requests.input=b", "output.directory=c"});
  const std::string page = metro::parameters_page();
  const std::string help = metro::parameters_help();
  const std::string resolved = metro::deck_to_toml(deck);

  for (const metro::Parameter& parameter : metro::parameters()) {
    CHECK_THAT(page, Contains(fmt::format("| `{}` |", parameter.key())));
    CHECK_THAT(page, Contains(parameter.meaning));
    CHECK_THAT(help, Contains(fmt::format("  {} ", parameter.name)));
    CHECK_THAT(resolved, Contains(fmt::format("\n{} = ", parameter.key())));
  }
  CHECK_THAT(page, Contains("| `memory` | `\"256 MiB\"` | a size from 4 KiB to 1 TiB | bytes |"));
  CHECK_THAT(help, Contains("run.timeout_s") && Contains("seconds") && Contains("default 300.0"));
}
