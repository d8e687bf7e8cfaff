#include "trace/importers.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "trace/import_counts.hpp"
#include "trace/import_packed.hpp"
#include "trace/requests_of_trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

namespace metro {

namespace {

constexpr std::array<TraceKind, 5> kinds{
    {{"gpt-oss-20b", "folder with experts.u8 [tokens, 24, 4], index.tsv, perhaps weights.bf16: decode"},
     {"deepseek-v2-lite", "folder with TASK.experts.u8 [tokens, 26, 6], index.tsv, perhaps TASK.weights.f32: prefill"},
     {"olmoe-counts", "JSON file with counts of 64 experts, top 8, for some layers; tokens are drawn"},
     {"mixtral-counts", "JSON file with counts of 8 experts, top 2, for some layers; tokens are drawn"},
     {"deepseek-moe-counts", "JSON file with counts of 64 experts, top 6, in 27 layers; tokens are drawn"}}};

void require_known(std::string_view kind) {
  if (std::none_of(kinds.begin(), kinds.end(), [&](const TraceKind& known) { return kind == known.name; })) {
    std::vector<std::string_view> names;
    std::transform(kinds.begin(), kinds.end(), std::back_inserter(names), [](const TraceKind& k) { return k.name; });
    throw Error(ExitCode::usage, fmt::format("unknown kind of trace '{}'; kinds are {}", kind, fmt::join(names, ", ")));
  }
}

bool is_count_table(std::string_view kind) {
  return kind.ends_with("-counts");
}

CountTable read_counts(std::string_view kind, const std::string& path) {
  if (kind == "olmoe-counts") {
    return read_layer_counts(path, {"olmoe", "OLMoE-1B-7B, counts, github.com/allenai/OLMoE", 64, 8, {}});
  }
  if (kind == "mixtral-counts") {
    return read_layer_counts(path, {"mixtral", "Mixtral-8x7B, counts, github.com/allenai/OLMoE", 8, 2, {}});
  }
  return read_deepseek_moe_counts(path);
}

}  // namespace

std::span<const TraceKind> trace_kinds() {
  return kinds;
}

ImportedTrace import_trace(std::string_view kind, const std::string& source, const DrawSettings& draw) {
  require_known(kind);
  if (is_count_table(kind)) {
    return {draw_trace(read_counts(kind, source), draw),
            {"the source has counts only: tokens are drawn from them, independent of each other"}};
  }
  return kind == "gpt-oss-20b" ? import_gpt_oss(source) : import_deepseek_v2_lite(source);
}

CountTable import_loads(std::string_view kind, const std::string& source) {
  require_known(kind);
  if (is_count_table(kind)) {
    return read_counts(kind, source);
  }
  const RoutingTrace trace = import_trace(kind, source, {}).trace;
  return {trace.model, loads_of(trace, requests_of(trace, TraceRows::all, TraceRequests::all))};
}

void write_loads(const CountTable& loads, const std::string& path, bool overwrite) {
  require_room_for_output(path, overwrite);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < loads.model.num_layers(); ++layer) {
    const auto first = loads.counts.begin() + layer * loads.model.num_experts;
    rows.push_back(std::vector<std::int64_t>(first, first + loads.model.num_experts));
  }
  const nlohmann::ordered_json document{{"num_experts", loads.model.num_experts},
                                        {"origin", loads.model.origin},
                                        {"model_layers", loads.model.layers},
                                        {"loads", rows}};
  write_file_atomically(path, to_json_line(document) + "\n");
}

}  // namespace metro
