// What the table of parameters looks like as text: a resolved deck, the reference page, the help.
#include "deck/byte_size.hpp"
#include "deck/parameter_value.hpp"
#include "deck/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

constexpr const char* page_opening = R"(# Parameters

Every key of a deck, the TOML file that `metro run` reads. This page is generated: `metro parameters > docs/parameters.md`.

- A key may also be given on the command line, `metro run DECK table.key=value`, and then replaces what the file says.
  The value is in TOML syntax; text may stand without quotes.
- A size is a whole number of bytes, or text with a unit such as `"512 MiB"` (units {};
  1 KiB is 1024 bytes, 1 kB is 1000 bytes).
- Relative paths are relative to the folder in which `metro` is started.
- An unknown or repeated key, a value of the wrong type and one out of range stop the run with exit code 2.
)";

std::string default_in_page(const Parameter& parameter, const Deck& defaults) {
  return parameter.required ? "required" : fmt::format("`{}`", value_in_toml(parameter, defaults));
}

// "number of tokens; what it means": the comment behind a key.
std::string comment(const Parameter& parameter) {
  return parameter.unit.empty() ? parameter.meaning : fmt::format("{}; {}", parameter.unit, parameter.meaning);
}

// Calls `begin_table` before the first parameter of each table.
template <class BeginTable, class Each>
void for_each_parameter(const BeginTable& begin_table, const Each& each) {
  std::string table;
  for (const Parameter& parameter : parameters()) {
    if (parameter.table() != table) {
      table = parameter.table();
      begin_table(table);
    }
    each(parameter);
  }
}

}  // namespace

std::string deck_to_toml(const Deck& deck) {
  std::string text;
  for_each_parameter(
      [&](const std::string& table) { text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table); },
      [&](const Parameter& parameter) {
        text += fmt::format("{} = {}  # {}\n", parameter.key(), value_in_toml(parameter, deck), comment(parameter));
      });
  return text;
}

std::string parameters_page() {
  const Deck defaults = default_deck();
  std::string page = fmt::format(fmt::runtime(page_opening), byte_units());
  for_each_parameter(
      [&](const std::string& table) {
        page +=
            fmt::format("\n## [{}]\n\n| key | default | allowed | unit | meaning |\n|---|---|---|---|---|\n", table);
      },
      [&](const Parameter& parameter) {
        page += fmt::format("| `{}` | {} | {} | {} | {} |\n", parameter.key(), default_in_page(parameter, defaults),
                            allowed_values(parameter), parameter.unit, parameter.meaning);
      });
  return page;
}

std::string parameters_help() {
  const Deck defaults = default_deck();
  std::size_t width = 0;
  for (const Parameter& parameter : parameters()) {
    width = std::max(width, parameter.name.size());
  }
  std::string help;
  for (const Parameter& parameter : parameters()) {
    const std::string state = parameter.required ? "required" : "default " + value_in_toml(parameter, defaults);
    help += fmt::format("  {:<{}}  {} ({})\n", parameter.name, width, comment(parameter), state);
  }
  return help;
}

}  // namespace metro
