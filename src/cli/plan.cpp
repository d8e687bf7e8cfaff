#include "cli/plan_command.hpp"

#include "base/file.hpp"
#include "base/integers.hpp"
#include "checkpoint/weight_reader.hpp"
#include "cli/plan_memory.hpp"
#include "cli/progress_line.hpp"
#include "cli/standard_output.hpp"
#include "decoder/expert_store.hpp"
#include "model/model_spec.hpp"
#include "placement/activation_aware.hpp"
#include "placement/device_map.hpp"
#include "placement/loads.hpp"
#include "placement/moves.hpp"
#include "plan/batch_sample.hpp"
#include "plan/placement_report.hpp"
#include "trace/trace_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

namespace metro {

namespace {

constexpr std::int64_t default_num_ranks = 8;
constexpr const char* activation_aware = "activation-aware";

// One slot more is tried with a search so much shorter: it only has to say what could be gained.
constexpr std::int64_t trial_shortening = 4;

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ExitCode::usage, "plan: " + reason);
}

// What a plan is made from.
struct Evidence {
  std::int64_t num_layers = 0, num_experts = 0;
  std::vector<std::int64_t> loads;         // [num_layers, num_experts]
  std::optional<ActivationSample> sample;  // with a trace
};

Evidence evidence_of_trace(const PlanOptions& options) {
  const RoutingTrace trace = read_trace(options.trace_path);
  const std::optional<TraceRequests> plan_on = trace_requests_named(options.plan_on);
  if (!plan_on) {
    refuse(fmt::format("--plan-on = '{}': must be even, odd or all", options.plan_on));
  }
  const std::optional<TraceRows> rows = options.rows.empty() ? usual_rows(trace) : trace_rows_named(options.rows);
  if (!rows) {
    refuse(fmt::format("--rows = '{}': must be decode, prefill or all", options.rows));
  }
  const std::vector<RequestRows> requests = requests_of(trace, *rows, *plan_on);
  if (requests.empty()) {
    refuse(fmt::format("{} has no {} rows of {} requests", options.trace_path, name_of(*rows), name_of(*plan_on)));
  }
  Evidence evidence{trace.model.num_layers(), trace.model.num_experts, loads_of(trace, requests), {}};
  evidence.sample = sample_of(trace, requests, {options.batch_sizes, options.num_steps, options.seed});
  return evidence;
}

Evidence evidence_of(const PlanOptions& options) {
  if (options.trace_path.empty() && options.loads_path.empty()) {
    refuse("needs --trace or --loads to place experts, or --model alone to plan memory");
  }
  if (options.trace_path.empty()) {
    LoadsFile file = read_loads(options.loads_path);
    return {file.num_layers, file.num_experts, std::move(file.loads), {}};
  }
  Evidence evidence = evidence_of_trace(options);
  if (!options.loads_path.empty()) {
    evidence.loads = read_loads(options.loads_path, evidence.num_layers, evidence.num_experts);
  }
  return evidence;
}

void require_same_shape(const ModelSpec& model, const std::string& path, const Evidence& evidence) {
  if (model.num_moe_layers() != evidence.num_layers || model.moe.num_experts != evidence.num_experts) {
    refuse(fmt::format("--model {} has {} MoE layers with {} experts, what is planned with has {} with {}", path,
                       model.num_moe_layers(), model.moe.num_experts, evidence.num_layers, evidence.num_experts));
  }
}

// Makes placements of one kind, with any number of slots.
class Maker {
 public:
  Maker(const PlanOptions& options, const Evidence& evidence, std::int64_t num_groups)
      : options_(&options), evidence_(&evidence), num_groups_(num_groups) {}

  Placement eplb(std::int64_t slots_per_rank) const {
    return place_eplb(evidence_->loads, evidence_->num_layers, evidence_->num_experts, num_groups_, options_->num_nodes,
                      options_->num_ranks, slots_per_rank);
  }

  Placement make(const std::string& kind, std::int64_t slots_per_rank, std::int64_t moves_per_slot,
                 const char* what) const {
    if (kind == "trivial") {
      return place_trivial(evidence_->num_layers, evidence_->num_experts, options_->num_ranks, slots_per_rank);
    }
    if (kind == "eplb") {
      return eplb(slots_per_rank);
    }
    const ActivationAwareOptions search{num_groups_,    options_->num_nodes, options_->spread_over_layers,
                                        options_->seed, moves_per_slot,      options_->num_threads};
    ProgressLine line(stderr, ::isatty(STDERR_FILENO) == 1);
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    return place_activation_aware(*evidence_->sample, evidence_->loads, options_->num_ranks, slots_per_rank, search,
                                  [&](std::int64_t done, std::int64_t total) {
                                    line.update_share(std::chrono::duration<double>(Clock::now() - start).count(),
                                                      static_cast<double>(done) / static_cast<double>(total), what);
                                  });
  }

 private:
  const PlanOptions* options_;
  const Evidence* evidence_;
  std::int64_t num_groups_;
};

bool is_made(const std::string& kind) {
  return kind == "trivial" || kind == "eplb" || kind == activation_aware;
}

std::string kind_of(const PlanOptions& options) {
  std::string kind = options.placement;
  if (kind.empty()) {
    kind = options.trace_path.empty() ? "eplb" : activation_aware;
  }
  if (kind == activation_aware && options.trace_path.empty()) {
    refuse("--placement activation-aware needs --trace: loads do not say which experts are active together");
  }
  if (options.slots_per_rank != 0 && options.replication != 1.0) {
    refuse(fmt::format("--slots-per-rank {} and --replication {}: only one of them may be given",
                       options.slots_per_rank, options.replication));
  }
  if (options.num_ranks % options.num_nodes != 0) {
    refuse(fmt::format("--nodes {}: must divide --ranks {}", options.num_nodes, options.num_ranks));
  }
  if (options.spread_over_layers && kind != activation_aware) {
    refuse(fmt::format("--spread: only for --placement activation-aware, not for {}", kind));
  }
  if (!options.output.empty() && !options.output.ends_with(".json")) {
    refuse(fmt::format("--out {}: must end in .json, as experts.placement wants it", options.output));
  }
  return kind;
}

Placement read_any_placement(const std::string& path, const Evidence& evidence, std::int64_t num_ranks) {
  Placement placement = path.ends_with(".npy") ? read_device_map(path) : read_placement(path);
  check_placement(placement, evidence.num_layers, evidence.num_experts, num_ranks, path);
  return placement;
}

}  // namespace

ExitCode plan_command(const PlanOptions& given) {
  PlanOptions options = given;
  if (options.trace_path.empty() && options.loads_path.empty() && !options.model_path.empty()) {
    plan_memory(options);
    return ExitCode::done;
  }
  if (!options.overrides.empty()) {
    refuse(fmt::format("{}: keys of a deck are for memory, which is planned without --trace and --loads",
                       options.overrides.front()));
  }
  options.num_ranks = options.num_ranks > 0 ? options.num_ranks : default_num_ranks;
  const std::string kind = kind_of(options);
  if (!options.output.empty()) {
    require_room_for_output(options.output, options.overwrite);
  }
  const Evidence evidence = evidence_of(options);
  std::unique_ptr<WeightReader> model;
  if (!options.model_path.empty()) {
    model = named_model(options.model_path);
    require_same_shape(model->spec(), options.model_path, evidence);
  }
  const std::int64_t model_groups = model ? model->spec().moe.gate.num_groups : 1;
  const Maker maker(options, evidence, options.num_groups > 0 ? options.num_groups : model_groups);

  std::int64_t slots = options.slots_per_rank > 0
                           ? options.slots_per_rank
                           : slots_for_replication(evidence.num_experts, options.num_ranks, options.replication);
  Placement placement;
  std::optional<Placement> with_one_more;
  if (is_made(kind)) {
    placement = maker.make(kind, slots, options.moves_per_slot, "placing experts");
    with_one_more = maker.make(kind, slots + 1, options.moves_per_slot / trial_shortening, "placing one more per rank");
  } else {
    placement = read_any_placement(kind, evidence, options.num_ranks);
    slots = placement.slots_per_rank;
  }
  if (!options.output.empty()) {
    write_placement(placement, options.output);
  }

  const Placement eplb = maker.eplb(slots);
  ReportedPlacement reported{kind,
                             &placement,
                             &eplb,
                             with_one_more ? &*with_one_more : nullptr,
                             evidence.sample ? &*evidence.sample : nullptr,
                             evidence.loads,
                             options.num_nodes,
                             {}};
  for (std::int64_t rank = 0; model && rank < options.num_ranks; ++rank) {
    reported.bytes_of_rank.push_back(resident_expert_bytes(*model, placement, rank, false));
  }
  print_to_stdout(placement_report(reported));
  if (!options.output.empty()) {
    print_to_stdout(fmt::format("wrote {}\n", options.output));
  }
  return ExitCode::done;
}

}  // namespace metro
