#include "replay/replay_report.hpp"

#include "base/build_info.hpp"
#include "base/integers.hpp"
#include "base/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <iterator>

namespace metro {

namespace {

using nlohmann::ordered_json;

constexpr const char* format_name = "metro-replay";
constexpr int format_version = 1;

// One number of the statistics: its name in files, and where it is.
struct Column {
  const char* name;
  double (*value)(const RoutingStatistics&);
};

constexpr std::array<Column, 13> columns{
    {{"active", [](const RoutingStatistics& s) { return s.active; }},
     {"lambda", [](const RoutingStatistics& s) { return s.lambda; }},
     {"lambda_p95", [](const RoutingStatistics& s) { return static_cast<double>(s.lambda_p95); }},
     {"lambda_max", [](const RoutingStatistics& s) { return static_cast<double>(s.lambda_max); }},
     {"activated", [](const RoutingStatistics& s) { return s.activated; }},
     {"optimum", [](const RoutingStatistics& s) { return s.optimum; }},
     {"gap", [](const RoutingStatistics& s) { return s.gap(); }},
     {"bound", [](const RoutingStatistics& s) { return s.bound; }},
     {"above_bound", [](const RoutingStatistics& s) { return s.above_bound(); }},
     {"rows_max_over_mean", [](const RoutingStatistics& s) { return s.rows_max_over_mean; }},
     {"differing_share", [](const RoutingStatistics& s) { return s.differing_share; }},
     {"lock_differing_share", [](const RoutingStatistics& s) { return s.lock_differing_share; }},
     {"microseconds", [](const RoutingStatistics& s) { return s.microseconds; }}}};

// Lock orders are those of the kernel that `metro` describes; for other policies there is no such number.
bool has_column(RoutingPolicy policy, const Column& column) {
  return policy == RoutingPolicy::metro || std::string_view(column.name) != "lock_differing_share";
}

ordered_json statistics_json(RoutingPolicy policy, const RoutingStatistics& statistics) {
  ordered_json object{{"batches", statistics.num_batches}};
  for (const Column& column : columns) {
    if (has_column(policy, column)) {
      object[column.name] = column.value(statistics);
    }
  }
  return object;
}

std::vector<std::int32_t> model_layers(const RoutingTrace& trace, const ReplaySettings& settings) {
  std::vector<std::int32_t> layers;
  std::transform(settings.layers.begin(), settings.layers.end(), std::back_inserter(layers),
                 [&](std::int64_t layer) { return trace.model.layers[at(layer)]; });
  return layers;
}

ordered_json settings_json(const RoutingTrace& trace, const ReplaySettings& settings) {
  return {{"draws", settings.num_draws},
          {"stride", settings.stride},
          {"seed", settings.seed},
          {"rows", std::string(name_of(settings.rows))},
          {"plan_on", std::string(name_of(settings.plan_on))},
          {"judge_on", std::string(name_of(settings.judge_on))},
          {"layers", model_layers(trace, settings)}};
}

ordered_json case_json(const ReplayCase& replayed) {
  return {{"placement", replayed.placement},     {"ranks", replayed.num_ranks},
          {"replication", replayed.replication}, {"slots_per_rank", replayed.slots_per_rank},
          {"batch", replayed.batch_size},        {"policy", std::string(name_of(replayed.policy))}};
}

std::string csv_line(const ReplayCase& replayed, const std::string& layer, const RoutingStatistics& statistics) {
  // A path may hold what separates columns.
  std::string placement = replayed.placement;
  if (placement.find_first_of(",\"\r\n") != std::string::npos) {
    for (std::size_t i = placement.find('"'); i != std::string::npos; i = placement.find('"', i + 2)) {
      placement.insert(i, 1, '"');
    }
    placement = '"' + placement + '"';
  }
  std::string line = fmt::format("{},{},{},{},{},{},{},{}", placement, replayed.num_ranks, replayed.replication,
                                 replayed.slots_per_rank, replayed.batch_size, name_of(replayed.policy), layer,
                                 statistics.num_batches);
  for (const Column& column : columns) {
    line += has_column(replayed.policy, column) ? fmt::format(",{}", column.value(statistics)) : ",";
  }
  return line + "\n";
}

}  // namespace

std::string replay_table(std::span<const ReplayResult> results) {
  std::size_t width = 9;
  for (const ReplayResult& result : results) {
    width = std::max(width, result.replayed.placement.size());
  }
  std::string text = fmt::format(
      "{:<{}} {:>5} {:>6} {:>5}  {:<12} {:>6} {:>7} {:>4} {:>4} {:>7} {:>7} {:>7} {:>7} {:>6} {:>7} {:>7} {:>7}\n",
      "placement", width, "ranks", "repl", "batch", "policy", "active", "lambda", "p95", "max", "optimum", "gap",
      "bound", "sum", "rows", "differ", "locks", "us");
  for (const auto& [replayed, layers, overall] : results) {
    text += fmt::format(
        "{:<{}} {:>5} {:>6.4g} {:>5}  {:<12} {:>6.1f} {:>7.2f} {:>4} {:>4} {:>7.2f} {:>6.1f}% {:>7.2f} {:>7.1f} "
        "{:>6.2f} "
        "{:>6.1f}% {:>7} {:>7.2f}\n",
        replayed.placement, width, replayed.num_ranks, replayed.replication, replayed.batch_size,
        name_of(replayed.policy), overall.active, overall.lambda, overall.lambda_p95, overall.lambda_max,
        overall.optimum, 100.0 * overall.gap(), overall.bound, overall.activated, overall.rows_max_over_mean,
        100.0 * overall.differing_share,
        replayed.policy == RoutingPolicy::metro ? fmt::format("{:.1f}%", 100.0 * overall.lock_differing_share) : "-",
        overall.microseconds);
  }
  return text;
}

std::string replay_json(const RoutingTrace& trace, const std::string& trace_path, const ReplaySettings& settings,
                        std::span<const ReplayResult> results) {
  const std::vector<std::int32_t> layers = model_layers(trace, settings);
  ordered_json cases = ordered_json::array();
  for (const ReplayResult& result : results) {
    ordered_json one = case_json(result.replayed);
    one["overall"] = statistics_json(result.replayed.policy, result.overall);
    one["layers"] = ordered_json::array();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      ordered_json layer = statistics_json(result.replayed.policy, result.layers[i]);
      layer["layer"] = layers[i];
      one["layers"].push_back(std::move(layer));
    }
    cases.push_back(std::move(one));
  }
  const ordered_json document{{"format", format_name},
                              {"version", format_version},
                              {"build", build_description()},
                              {"trace",
                               {{"path", trace_path},
                                {"family", trace.model.family},
                                {"origin", trace.model.origin},
                                {"num_experts", trace.model.num_experts},
                                {"top_k", trace.model.top_k},
                                {"tokens", trace.num_tokens()}}},
                              {"settings", settings_json(trace, settings)},
                              {"results", std::move(cases)}};
  return to_json_line(document) + "\n";
}

std::string replay_csv(const RoutingTrace& trace, const ReplaySettings& settings,
                       std::span<const ReplayResult> results) {
  std::string text = "placement,ranks,replication,slots_per_rank,batch,policy,layer,batches";
  for (const Column& column : columns) {
    text += fmt::format(",{}", column.name);
  }
  text += "\n";
  const std::vector<std::int32_t> layers = model_layers(trace, settings);
  for (const ReplayResult& result : results) {
    text += csv_line(result.replayed, "all", result.overall);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      text += csv_line(result.replayed, std::to_string(layers[i]), result.layers[i]);
    }
  }
  return text;
}

std::string replayed_batch_json(const RoutingTrace& trace, const ReplayedBatch& routed) {
  const auto numbers = [](std::span<const std::int32_t> values) {
    return std::vector<std::int32_t>(values.begin(), values.end());
  };
  ordered_json object = case_json(routed.replayed);
  object["layer"] = trace.model.layers[at(routed.layer)];
  object["draw"] = routed.draw;
  object["num_experts"] = trace.model.num_experts;
  object["rows"] = routed.batch.rows;
  object["row_to_rank"] = routed.batch.row_to_rank;
  ordered_json ids = ordered_json::array();
  ordered_json slots = ordered_json::array();
  const auto top_k = at(trace.model.top_k);
  for (std::size_t row = 0; row < routed.batch.rows.size(); ++row) {
    ids.push_back(numbers(routed.topk_idx.subspan(row * top_k, top_k)));
    slots.push_back(numbers(routed.slots.subspan(row * top_k, top_k)));
  }
  object["topk_idx"] = std::move(ids);
  object["physical_to_logical"] = numbers(routed.slot_to_expert);
  object["slot"] = std::move(slots);
  object["activated"] = numbers(routed.activated);
  object["lambda"] = *std::max_element(routed.activated.begin(), routed.activated.end());
  object["optimum"] = routed.optimum;
  return to_json_line(object);
}

}  // namespace metro
