#include "trace/count_table.hpp"

#include "base/error.hpp"
#include "trace/random_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace metro {

namespace {

std::span<const std::int64_t> layer_of(const CountTable& table, std::int64_t layer) {
  return std::span(table.counts).subspan(at(layer * table.model.num_experts), at(table.model.num_experts));
}

// Puts the experts in a random order on a line, each as long as its count, and takes those under top_k marks that are
// `num_tokens` apart. No count is longer than that, so the experts are distinct.
void draw_experts(std::span<const std::int64_t> counts, std::int64_t num_tokens, std::vector<std::uint16_t>& order,
                  RandomNumbers& random, std::vector<std::uint16_t>& topk_idx) {
  random.shuffle(order);
  auto mark = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(num_tokens)));
  std::int64_t end = 0;
  for (const std::uint16_t expert : order) {
    end += counts[expert];
    if (mark < end) {
      topk_idx.push_back(expert);
      mark += num_tokens;
    }
  }
}

}  // namespace

void check_count_table(const CountTable& table, const std::string& origin) {
  check_trace_model(table.model, origin);
  const auto fail = [&](std::int64_t layer, const std::string& complaint) {
    throw Error(ExitCode::input, fmt::format("{}: layer {}: {}", origin, table.model.layers[at(layer)], complaint));
  };
  std::int64_t num_tokens = 0;
  for (std::int64_t layer = 0; layer < table.model.num_layers(); ++layer) {
    constexpr std::int64_t largest_count = std::numeric_limits<std::int64_t>::max() / 65536;
    const auto counts = layer_of(table, layer);
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    if (*least < 0 || *most > largest_count) {
      fail(layer, fmt::format("counts are {} to {}; allowed are 0 to {}", *least, *most, largest_count));
    }
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (sum == 0 || sum % table.model.top_k != 0 || (layer > 0 && sum / table.model.top_k != num_tokens)) {
      fail(layer, fmt::format("counts sum to {}; needed is {} times the number of tokens, the same in all layers", sum,
                              table.model.top_k));
    }
    num_tokens = sum / table.model.top_k;
    if (*most > num_tokens) {
      fail(layer, fmt::format("expert {} was chosen {} times by {} tokens", most - counts.begin(), *most, num_tokens));
    }
  }
}

RoutingTrace draw_trace(const CountTable& table, const DrawSettings& settings) {
  const TraceModel& model = table.model;
  RoutingTrace trace;
  trace.model = model;
  trace.model.origin += fmt::format("; tokens drawn from counts, seed {}", settings.seed);
  const auto first_counts = layer_of(table, 0);
  const std::int64_t num_tokens =
      std::accumulate(first_counts.begin(), first_counts.end(), std::int64_t{0}) / model.top_k;
  std::vector<std::uint16_t> order(at(model.num_experts));
  std::iota(order.begin(), order.end(), std::uint16_t{0});
  RandomNumbers random(settings.seed);
  for (std::int64_t token = 0; token < settings.num_tokens; ++token) {
    for (std::int64_t layer = 0; layer < model.num_layers(); ++layer) {
      draw_experts(layer_of(table, layer), num_tokens, order, random, trace.topk_idx);
    }
    trace.request.push_back(static_cast<std::uint32_t>(token / settings.tokens_per_request));
    trace.position.push_back(static_cast<std::uint32_t>(token % settings.tokens_per_request));
  }
  trace.token_id.assign(at(settings.num_tokens), RoutingTrace::unknown_token);
  trace.step.assign(at(settings.num_tokens), RoutingTrace::unknown_step);
  trace.phase.assign(at(settings.num_tokens), TracePhase::decode);
  return trace;
}

}  // namespace metro
