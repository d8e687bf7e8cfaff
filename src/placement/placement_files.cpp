// The JSON files of this room: placements (exchangeable with SGLang) and loads. Both are strict about the keys they
// define and ignore others, because other programs write more. Format: docs/placement.md.
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "placement/loads.hpp"
#include "placement/placement.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <optional>
#include <string_view>

namespace metro {

using nlohmann::json;

namespace {

constexpr const char* map_key = "physical_to_logical_map";

struct Range {
  std::int64_t lowest, highest;
};

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ExitCode::usage, fmt::format("{}: {}", path, reason));
}

json read_object(const std::string& path) {
  json document = parse_json(read_file(path, ExitCode::usage), path, ExitCode::usage);
  if (!document.is_object()) {
    fail(path, fmt::format("must be a JSON object, not {}", document.type_name()));
  }
  return document;
}

const json& member(const json& document, const char* key, const std::string& path) {
  const auto found = document.find(key);
  if (found == document.end()) {
    fail(path, fmt::format("key \"{}\" is missing", key));
  }
  return *found;
}

// Nothing if `value` is no integer or lies outside `range`.
std::optional<std::int64_t> integer_within(const json& value, Range range) {
  constexpr auto max_signed = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > max_signed)) {
    return std::nullopt;
  }
  const auto integer = value.get<std::int64_t>();
  return integer >= range.lowest && integer <= range.highest ? std::optional(integer) : std::nullopt;
}

[[noreturn]] void fail_integer(const std::string& path, const std::string& place, const json& value, Range range) {
  constexpr std::size_t max_shown = 40;
  std::string text = value.dump();
  if (text.size() > max_shown) {
    text = std::string(value.type_name());
  }
  const std::string allowed = range.highest == std::numeric_limits<std::int64_t>::max()
                                  ? fmt::format("of {} or more", range.lowest)
                                  : fmt::format("from {} to {}", range.lowest, range.highest);
  fail(path, fmt::format("{} = {}: must be an integer {}", place, text, allowed));
}

std::int64_t count_member(const json& document, const char* key, const std::string& path) {
  constexpr Range range{1, std::numeric_limits<std::int32_t>::max()};
  const json& value = member(document, key, path);
  const auto count = integer_within(value, range);
  if (!count) {
    fail_integer(path, key, value, range);
  }
  return *count;
}

const json& array_member(const json& document, const char* key, const std::string& path) {
  const json& value = member(document, key, path);
  if (!value.is_array()) {
    fail(path, fmt::format("{}: must be an array with one array per MoE layer, not {}", key, value.type_name()));
  }
  return value;
}

// All entries of the array of arrays under `key`, row by row. `row_rule` says why a row has row_length entries.
template <class T>
std::vector<T> integer_rows(const json& document, const char* key, std::int64_t row_length, std::string_view row_rule,
                            Range range, const std::string& path) {
  std::vector<T> values;
  const json& rows = array_member(document, key, path);
  for (std::size_t row_idx = 0; row_idx < rows.size(); ++row_idx) {
    const json& row = rows[row_idx];
    if (!row.is_array() || std::ssize(row) != row_length) {
      const std::string found = row.is_array() ? fmt::format("{} entries", row.size()) : row.type_name();
      fail(path, fmt::format("{}[{}]: must be an array of {} integers ({}), not {}", key, row_idx, row_length, row_rule,
                             found));
    }
    for (std::size_t column_idx = 0; column_idx < row.size(); ++column_idx) {
      const auto integer = integer_within(row[column_idx], range);
      if (!integer) {
        fail_integer(path, fmt::format("{}[{}][{}]", key, row_idx, column_idx), row[column_idx], range);
      }
      values.push_back(static_cast<T>(*integer));
    }
  }
  return values;
}

}  // namespace

Placement read_placement(const std::string& path) {
  const json document = read_object(path);
  Placement placement;
  placement.num_experts = count_member(document, "num_experts", path);
  placement.num_ranks = count_member(document, "num_ranks", path);
  placement.slots_per_rank = count_member(document, "slots_per_rank", path);
  constexpr std::int64_t max_slots = std::numeric_limits<std::int32_t>::max();
  if (placement.num_slots() < placement.num_experts || placement.num_slots() > max_slots) {
    fail(path, fmt::format("num_ranks * slots_per_rank = {}: must be from num_experts = {} to {}",
                           placement.num_slots(), placement.num_experts, max_slots));
  }
  placement.num_layers = std::ssize(array_member(document, map_key, path));
  placement.slot_to_expert =
      integer_rows<std::int32_t>(document, map_key, placement.num_slots(), "num_ranks * slots_per_rank",
                                 {Placement::empty_slot, placement.num_experts - 1}, path);
  check_placement(placement, placement.num_layers, placement.num_experts, placement.num_ranks, path);
  return placement;
}

void write_placement(const Placement& placement, const std::string& path) {
  std::string text = fmt::format("{{\"num_experts\":{},\"num_ranks\":{},\"slots_per_rank\":{},\"{}\":[",
                                 placement.num_experts, placement.num_ranks, placement.slots_per_rank, map_key);
  for (std::int64_t layer = 0; layer < placement.num_layers; ++layer) {
    text += fmt::format("{}\n[{}]", layer == 0 ? "" : ",", fmt::join(placement.layer(layer), ","));
  }
  text += "\n]}\n";
  write_file_atomically(path, text);
}

LoadsFile read_loads(const std::string& path) {
  const json document = read_object(path);
  LoadsFile file;
  file.num_experts = count_member(document, "num_experts", path);
  file.num_layers = std::ssize(array_member(document, "loads", path));
  if (file.num_layers == 0) {
    fail(path, "loads: has no layers");
  }
  file.loads = integer_rows<std::int64_t>(document, "loads", file.num_experts, "num_experts",
                                          {0, std::numeric_limits<std::int64_t>::max()}, path);
  return file;
}

std::vector<std::int64_t> read_loads(const std::string& path, std::int64_t num_layers, std::int64_t num_experts) {
  const json document = read_object(path);
  const std::int64_t file_experts = count_member(document, "num_experts", path);
  if (file_experts != num_experts) {
    fail(path, fmt::format("num_experts = {}: the model has {} experts", file_experts, num_experts));
  }
  const auto file_layers = std::ssize(array_member(document, "loads", path));
  if (file_layers != num_layers) {
    fail(path, fmt::format("loads: has {} layers, but the model has {} MoE layers", file_layers, num_layers));
  }
  return integer_rows<std::int64_t>(document, "loads", num_experts, "num_experts",
                                    {0, std::numeric_limits<std::int64_t>::max()}, path);
}

}  // namespace metro
