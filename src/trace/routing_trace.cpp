#include "trace/routing_trace.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace metro {

namespace {

constexpr std::int64_t most_experts = 65536;

[[noreturn]] void fail(const std::string& origin, const std::string& complaint) {
  throw Error(ExitCode::input, fmt::format("{}: {}", origin, complaint));
}

void check_sizes(const RoutingTrace& trace, const std::string& origin) {
  const std::int64_t num_tokens = trace.num_tokens();
  const auto require = [&](const char* name, std::int64_t found, std::int64_t needed) {
    if (found != needed) {
      fail(origin, fmt::format("{} has {} values, {} tokens need {}", name, found, num_tokens, needed));
    }
  };
  const std::int64_t num_ids = num_tokens * trace.model.ids_per_token();
  require("topk_idx", std::ssize(trace.topk_idx), num_ids);
  if (trace.has_weights()) {
    require("topk_weight", std::ssize(trace.topk_weight), num_ids);
  }
  require("position", std::ssize(trace.position), num_tokens);
  require("token_id", std::ssize(trace.token_id), num_tokens);
  require("step", std::ssize(trace.step), num_tokens);
  require("phase", std::ssize(trace.phase), num_tokens);
}

void check_experts(const RoutingTrace& trace, const std::string& origin) {
  std::vector<std::int64_t> last_use(at(trace.model.num_experts), -1);
  std::int64_t use = 0;  // counts (token, layer) pairs
  for (std::int64_t row = 0; row < trace.num_tokens(); ++row) {
    for (std::int64_t layer = 0; layer < trace.model.num_layers(); ++layer, ++use) {
      for (const std::uint16_t expert : trace.experts(row, layer)) {
        if (expert >= trace.model.num_experts) {
          fail(origin, fmt::format("token {}, layer {}: expert {}; allowed are 0 to {}", row,
                                   trace.model.layers[at(layer)], expert, trace.model.num_experts - 1));
        }
        if (last_use[expert] == use) {
          fail(origin, fmt::format("token {}, layer {}: expert {} twice", row, trace.model.layers[at(layer)], expert));
        }
        last_use[expert] = use;
      }
    }
  }
}

void check_tokens(const RoutingTrace& trace, const std::string& origin) {
  const auto bad_phase = std::find_if(trace.phase.begin(), trace.phase.end(), [](TracePhase phase) {
    return phase != TracePhase::prefill && phase != TracePhase::decode;
  });
  if (bad_phase != trace.phase.end()) {
    fail(origin, fmt::format("token {}: phase {}; allowed are 0 (prefill) and 1 (decode)",
                             bad_phase - trace.phase.begin(), static_cast<int>(*bad_phase)));
  }
  std::vector<std::uint64_t> places(trace.request.size());
  std::transform(trace.request.begin(), trace.request.end(), trace.position.begin(), places.begin(),
                 [](std::uint64_t request, std::uint64_t position) { return request << 32 | position; });
  std::sort(places.begin(), places.end());
  const auto twice = std::adjacent_find(places.begin(), places.end());
  if (twice != places.end()) {
    fail(origin, fmt::format("request {} has position {} twice", *twice >> 32, *twice & 0xffffffffU));
  }
}

}  // namespace

void check_trace_model(const TraceModel& model, const std::string& origin) {
  if (model.num_experts < 1 || model.num_experts > most_experts) {
    fail(origin, fmt::format("num_experts = {}: must be 1 to {}", model.num_experts, most_experts));
  }
  if (model.top_k < 1 || model.top_k > model.num_experts) {
    fail(origin, fmt::format("top_k = {}: must be 1 to the number of experts, {}", model.top_k, model.num_experts));
  }
  const auto& layers = model.layers;
  const bool ascending = std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  if (layers.empty() || layers.front() < 0 || !ascending) {
    fail(origin, fmt::format("layers are {}: must be at least one, ascending, 0 or more", layers));
  }
}

void check_trace(const RoutingTrace& trace, const std::string& origin) {
  check_trace_model(trace.model, origin);
  check_sizes(trace, origin);
  check_experts(trace, origin);
  const auto bad_weight = std::find_if_not(trace.topk_weight.begin(), trace.topk_weight.end(),
                                           [](float weight) { return std::isfinite(weight); });
  if (bad_weight != trace.topk_weight.end()) {
    fail(origin, fmt::format("token {}: a weight that is not a finite number",
                             (bad_weight - trace.topk_weight.begin()) / trace.model.ids_per_token()));
  }
  check_tokens(trace, origin);
}

}  // namespace metro
