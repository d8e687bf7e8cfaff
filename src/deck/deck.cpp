// Reading a deck: file, then overrides, then what holds between keys. All errors are exit code 2.
#include "deck/deck.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "deck/byte_size.hpp"
#include "deck/nearest.hpp"
#include "deck/parameter_value.hpp"
#include "deck/parameters.hpp"
#include "deck/toml_document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>

namespace metro {

namespace {

constexpr std::size_t most_override_bytes = 10'000;  // also with every byte as \uXXXX they fit into a deck

using SetAt = std::map<std::string, std::string>;  // parameter name to "file:line" or the override

[[noreturn]] void fail(const std::string& where, const std::string& message) {
  throw Error(ExitCode::usage, one_line(where + ": " + message));
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters()) {
    if (names.empty() || names.back() != parameter.table()) {
      names.push_back(parameter.table());
    }
  }
  return names;
}

bool is_table(const std::string& name) {
  const std::vector<std::string> names = table_names();
  return std::ranges::find(names, name) != names.end();
}

// The parameter that was probably meant: the same key of another table, else the nearest name, else what there is.
[[noreturn]] void fail_unknown_key(const std::string& name, const std::string& where) {
  const std::string key = name.substr(name.rfind('.') + 1);
  const std::string table = name.substr(0, name.find('.'));
  std::vector<std::string> names;
  std::vector<std::string> keys_of_table;
  for (const Parameter& parameter : parameters()) {
    if (parameter.key() == key) {
      fail(where, fmt::format("unknown key {}; did you mean {}?", name, parameter.name));
    }
    names.push_back(parameter.name);
    if (parameter.table() == table) {
      keys_of_table.push_back(parameter.key());
    }
  }
  if (const std::optional<std::string> meant = nearest(name, names)) {
    fail(where, fmt::format("unknown key {}; did you mean {}?", name, *meant));
  }
  if (!keys_of_table.empty()) {
    fail(where, fmt::format("unknown key {}; [{}] has {}", name, table, fmt::join(keys_of_table, ", ")));
  }
  fail(where, fmt::format("unknown key {}; tables are {}", name, fmt::join(table_names(), ", ")));
}

void check_table(const TomlEntry& entry, const std::string& where) {
  if (entry.table.empty() && is_table(entry.key)) {
    fail(where, fmt::format("{} = {}: must be a table, [{}]", entry.key, entry.value.written, entry.key));
  }
  if (entry.table.empty()) {
    fail_unknown_key(entry.key, where);
  }
  if (!is_table(entry.table)) {
    const std::optional<std::string> meant = nearest(entry.table, table_names());
    fail(where, meant ? fmt::format("unknown table [{}]; did you mean [{}]?", entry.table, *meant)
                      : fmt::format("unknown table [{}]; tables are {}", entry.table, fmt::join(table_names(), ", ")));
  }
}

void read_entries(const std::string& toml_text, const std::string& origin, Deck& deck, SetAt& set_at) {
  for (const TomlEntry& entry : parse_toml(toml_text, origin)) {
    const std::string where = fmt::format("{}:{}", origin, entry.line);
    check_table(entry, where);
    if (entry.key.empty()) {
      continue;  // a table without keys
    }
    const std::string name = entry.table + "." + entry.key;
    const Parameter* parameter = find_parameter(name);
    if (parameter == nullptr) {
      fail_unknown_key(name, where);
    }
    store_value(*parameter, entry.value, where, deck);
    set_at[name] = where;
  }
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// A shell takes quotes away, so text may stand without them; for a key that takes text, everything without quotes is
// text, also a folder named 2024. Where a list is possible, an array of text in TOML syntax is one.
TomlValue value_of_override(const Parameter& parameter, const std::string& text, const std::string& where) {
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  const bool takes_list = std::holds_alternative<TextListRule>(parameter.rule);
  const bool takes_text = takes_list || std::holds_alternative<TextRule>(parameter.rule) ||
                          std::holds_alternative<ShardRule>(parameter.rule) ||
                          std::holds_alternative<DateRule>(parameter.rule);
  if (takes_list && text.starts_with('[')) {
    const std::optional<TomlValue> value = parse_toml_value(text);
    if (value && std::holds_alternative<std::vector<std::string>>(value->content)) {
      return *value;
    }
  }
  if (quoted || !takes_text) {
    const std::optional<TomlValue> value = parse_toml_value(text);
    if (value) {
      return *value;
    }
    if (quoted) {
      fail(where, fmt::format("{} is not text in TOML syntax", text));
    }
  }
  std::optional<TomlValue> value = parse_toml_value(toml_quoted(text));
  if (!value) {
    fail(where, "the value is not valid UTF-8");
  }
  value->written = one_line(text);
  return *value;
}

void apply_override(const std::string& override_text, Deck& deck, SetAt& set_at) {
  const std::string where = one_line(fmt::format("override '{}'", excerpt(override_text, most_quoted)));
  if (override_text.size() > most_override_bytes) {
    fail(where,
         fmt::format("{} bytes are too many for an override (at most {})", override_text.size(), most_override_bytes));
  }
  const std::size_t equals = override_text.find('=');
  const std::string name = trimmed(override_text.substr(0, equals));
  if (equals == std::string::npos || name.empty()) {
    fail(where, "must have the form table.key=value");
  }
  const Parameter* parameter = find_parameter(name);
  if (parameter == nullptr) {
    fail_unknown_key(name, where);
  }
  store_value(*parameter, value_of_override(*parameter, trimmed(override_text.substr(equals + 1)), where), where, deck);
  set_at[name] = where;
}

void apply_overrides(const std::vector<std::string>& overrides, Deck& deck, SetAt& set_at) {
  std::set<std::string> overridden;
  for (const std::string& override_text : overrides) {
    apply_override(override_text, deck, set_at);
    const std::string name = trimmed(override_text.substr(0, override_text.find('=')));
    if (!overridden.insert(name).second) {
      fail(fmt::format("override '{}'", excerpt(override_text, most_quoted)),
           fmt::format("{} is overridden twice", name));
    }
  }
}

void check_required(const std::string& origin, const SetAt& set_at) {
  for (const Parameter& parameter : parameters()) {
    if (parameter.required && !set_at.contains(parameter.name)) {
      fail(origin, fmt::format("required key {} is missing: {}", parameter.name, parameter.meaning));
    }
  }
}

// Keys of [routing] that only some policies use.
void check_routing(const Deck::Routing& routing, const SetAt& set_at) {
  const auto require_policy = [&](const char* name, std::int64_t value, std::int64_t default_value,
                                  const std::string& policy) {
    if (value != default_value && routing.decode != policy && routing.prefill != policy) {
      fail(set_at.at(name),
           fmt::format("{} = {}: only the policy {} uses it, but routing.decode is {} and routing.prefill {}", name,
                       value, toml_quoted(policy), toml_quoted(routing.decode), toml_quoted(routing.prefill)));
    }
  };
  if (routing.ties != "first" && routing.decode != "exact" && routing.prefill != "exact") {
    fail(set_at.at("routing.ties"),
         fmt::format("routing.ties = {}: only the policy \"exact\" uses it, but routing.decode is {} and "
                     "routing.prefill {}",
                     toml_quoted(routing.ties), toml_quoted(routing.decode), toml_quoted(routing.prefill)));
  }
  const Deck::Routing defaults = default_deck().routing;
  require_policy("routing.seed", routing.seed, defaults.seed, "vllm-random");
  require_policy("routing.read_fixed_ns", routing.read_fixed_ns, defaults.read_fixed_ns, "makespan");
  require_policy("routing.read_per_expert_ns", routing.read_per_expert_ns, defaults.read_per_expert_ns, "makespan");
  require_policy("routing.compute_fixed_ns", routing.compute_fixed_ns, defaults.compute_fixed_ns, "makespan");
  require_policy("routing.compute_per_row_ns", routing.compute_per_row_ns, defaults.compute_per_row_ns, "makespan");
  if (routing.read_per_expert_ns == 0 && routing.compute_per_row_ns == 0) {
    fail(
        set_at.at("routing.read_per_expert_ns"),
        "routing.read_per_expert_ns and routing.compute_per_row_ns are both 0: then no routing is better than another; "
        "set at least one of them");
  }
}

void check_combinations(const Deck& deck, const SetAt& set_at) {
  check_routing(deck.routing, set_at);
  if (deck.decode.gate == "gathered" && deck.decode.exchange == "ids_then_alltoall") {
    fail(set_at.at("decode.gate"),
         fmt::format(
             "decode.gate = \"gathered\" and decode.exchange = \"ids_then_alltoall\" ({}): a gathered gate needs "
             "the rows of all ranks; take decode.exchange = \"allgather\" or decode.gate = \"local\"",
             set_at.at("decode.exchange")));
  }
  // A key at its default counts as not set, so that an override can take back what the file says.
  const Deck::Experts& experts = deck.experts;
  if (experts.slots_per_rank != 0 && experts.replication != 1.0) {
    fail(
        set_at.at("experts.slots_per_rank"),
        fmt::format("experts.slots_per_rank = {} and experts.replication = {} ({}): only one of them may be set; leave "
                    "slots_per_rank at 0 or replication at 1.0",
                    experts.slots_per_rank, experts.replication, set_at.at("experts.replication")));
  }
  if (!experts.loads.empty() && experts.placement != "eplb") {
    fail(set_at.at("experts.loads"),
         fmt::format("experts.loads = {}: only experts.placement = \"eplb\" uses loads, but it is {}",
                     toml_quoted(experts.loads), toml_quoted(experts.placement)));
  }
  if (!experts.trace.empty() && experts.placement != "activation-aware") {
    fail(set_at.at("experts.trace"),
         fmt::format("experts.trace = {}: only experts.placement = \"activation-aware\" uses a trace, but it is {}",
                     toml_quoted(experts.trace), toml_quoted(experts.placement)));
  }
  if (experts.trace.empty() && experts.placement == "activation-aware") {
    fail(
        set_at.at("experts.placement"),
        "experts.placement = \"activation-aware\": needs experts.trace, a file that metro import-trace or a run wrote");
  }
}

}  // namespace

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides) {
  // A checkpoint given by mistake must not be read whole. Pipes have no size and are limited by parse_toml.
  std::error_code no_size;
  const std::uintmax_t size = std::filesystem::file_size(path, no_size);
  if (!no_size && size > most_deck_bytes) {
    fail(path, fmt::format("{} are too many for a deck (at most {})",
                           rounded_byte_size(static_cast<std::int64_t>(size)), rounded_byte_size(most_deck_bytes)));
  }
  return parse_deck(read_file(path, ExitCode::usage, most_deck_bytes), path, overrides);
}

Deck parse_deck(const std::string& toml_text, const std::string& origin, const std::vector<std::string>& overrides) {
  Deck deck = default_deck();
  SetAt set_at;
  read_entries(toml_text, origin, deck, set_at);
  apply_overrides(overrides, deck, set_at);
  check_required(origin, set_at);
  check_combinations(deck, set_at);
  return deck;
}

}  // namespace metro
