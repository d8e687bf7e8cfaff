#include "report/summary_json.hpp"

#include "base/json.hpp"
#include "report/core_use.hpp"
#include "report/metrics_reader.hpp"
#include "report/run_statistics.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace metro {

namespace {

using nlohmann::ordered_json;

ordered_json identity_json(const RunIdentity& identity) {
  const auto& nodes = identity.rank_to_node;
  ordered_json run = {{"build", identity.build},
                      {"software", identity.software},
                      {"started", identity.started},
                      {"checkpoint", identity.checkpoint},
                      {"checkpoint_digest", identity.checkpoint_digest},
                      {"transport", identity.transport},
                      {"placement", identity.placement_name},
                      {"decode_policy", identity.decode_policy},
                      {"prefill_policy", identity.prefill_policy},
                      {"shard", identity.shard},
                      {"deck", identity.deck},
                      {"ranks", identity.placement.num_ranks},
                      {"nodes", nodes.empty() ? 0 : 1 + *std::max_element(nodes.begin(), nodes.end())},
                      {"cores", nullptr}};
  if (const std::optional<CoreUse> use = core_use(identity)) {
    run["cores"] = {{"threads", use->num_threads},
                    {"cores", use->num_cores},
                    {"host", use->host},
                    {"is_crowded", use->is_crowded()}};
  }
  return run;
}

void add_totals(const std::optional<RunTotals>& totals, const RunStatistics& statistics, ordered_json& run) {
  run["has_ended"] = totals.has_value();
  run["load_s"] = totals ? ordered_json(totals->load_s) : ordered_json();
  run["run_s"] = totals ? totals->run_s : statistics.end_s;
  run["prompt_tokens_computed"] = nullptr;
  run["prompt_tokens_shared"] = nullptr;
  if (totals && !totals->prompt_of_rank.empty()) {
    std::vector<std::int64_t> computed;
    std::vector<std::int64_t> shared;
    for (const PromptTokens& rank : totals->prompt_of_rank) {
      computed.push_back(rank.num_computed);
      shared.push_back(rank.num_shared);
    }
    run["prompt_tokens_computed"] = computed;
    run["prompt_tokens_shared"] = shared;
  }
  run["num_rejected"] = totals ? ordered_json(totals->num_rejected) : ordered_json();
}

void add_statistics(const RunStatistics& statistics, ordered_json& run) {
  run["completed"] = statistics.num_stop + statistics.num_length;
  run["prompt_tokens"] = statistics.prompt_tokens;
  run["generated_tokens"] = statistics.generated_tokens;
  run["prefill_steps"] = statistics.prefill_steps;
  run["prefill_s"] = statistics.prefill_s;
  run["decode_steps"] = statistics.decode_steps;
  run["decode_s"] = statistics.decode_s;
  ordered_json phases = ordered_json::object();
  for (std::size_t phase = 0; phase < num_phases; ++phase) {
    phases[name_of(static_cast<Phase>(phase))] = statistics.decode_phase_mean_s[phase];
  }
  run["decode_phase_mean_s"] = std::move(phases);
  const ActivationStatistics& activation = statistics.activation;
  run["lambda"] = activation.mean(activation.lambda_sum);
  run["optimum"] = activation.mean(activation.optimum_sum);
  run["active"] = activation.mean(activation.active_sum);
}

}  // namespace

void inspect_metrics_as_json(const std::string& path, std::FILE* out) {
  const MetricsReader reader(path);
  RunStatistics statistics;
  reader.for_each_step([&](const StepMetrics& step) { statistics.add(step); });
  reader.for_each_request([&](const RequestMetrics& request) { statistics.add(request); });
  ordered_json run = identity_json(reader.identity());
  add_totals(reader.totals(), statistics, run);
  add_statistics(statistics, run);
  std::fprintf(out, "%s\n", to_json_line(run).c_str());
}

}  // namespace metro
