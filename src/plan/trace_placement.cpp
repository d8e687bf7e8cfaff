#include "plan/trace_placement.hpp"

#include "base/error.hpp"
#include "placement/activation_aware.hpp"
#include "plan/batch_sample.hpp"
#include "trace/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

constexpr std::int64_t num_steps = 3000;
constexpr std::int64_t moves_per_slot = 100;

}  // namespace

Placement place_from_trace(const std::string& trace_path, const PlacementNeed& need) {
  const RoutingTrace trace = read_trace(trace_path);
  if (trace.model.num_layers() != need.num_layers || trace.model.num_experts != need.num_experts) {
    throw Error(ExitCode::usage,
                fmt::format("{}: a trace of {} MoE layers with {} experts, but the model has {} with {}", trace_path,
                            trace.model.num_layers(), trace.model.num_experts, need.num_layers, need.num_experts));
  }
  const auto requests = requests_of(trace, usual_rows(trace), TraceRequests::all);
  if (requests.empty()) {
    throw Error(ExitCode::usage, fmt::format("{}: has no tokens to plan with", trace_path));
  }
  BatchSampleSettings settings;
  settings.num_steps = num_steps;
  const std::int64_t most = std::min<std::int64_t>(need.most_sequences, std::ssize(requests));
  for (const std::int64_t batch_size : {most, most / 2, most / 4}) {
    if (batch_size >= 1) {
      settings.batch_sizes.push_back(batch_size);
    }
  }
  ActivationAwareOptions options;
  options.num_groups = need.num_groups;
  options.num_nodes = need.num_nodes;
  options.num_threads = need.num_threads;
  options.moves_per_slot = moves_per_slot;
  return place_activation_aware(sample_of(trace, requests, settings), loads_of(trace, requests), need.num_ranks,
                                need.slots_per_rank, options);
}

}  // namespace metro
