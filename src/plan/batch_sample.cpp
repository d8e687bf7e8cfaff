#include "plan/batch_sample.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "trace/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace metro {

namespace {

// Steps between two drawn ones: sequences have moved on, and some have given way to others.
constexpr std::int64_t stride = 16;
constexpr std::int64_t num_pilot_steps = 64;

void add_step(ActivationSample& sample, std::int64_t step, const RoutingTrace& trace, const TraceBatch& batch) {
  for (const std::int64_t row : batch.rows) {
    for (std::int64_t layer = 0; layer < trace.model.num_layers(); ++layer) {
      for (const std::uint16_t expert : trace.experts(row, layer)) {
        sample.set_active(step, layer, expert);
      }
    }
  }
}

// Active experts of a batch of this size, all layers together, as a mean.
double mean_active(const RoutingTrace& trace, std::span<const RequestRows> requests, std::int64_t batch_size,
                   std::uint64_t seed) {
  ActivationSample pilot(num_pilot_steps, trace.model.num_layers(), trace.model.num_experts);
  TraceBatches batches(requests, batch_size, 1, seed);
  std::int64_t num_active = 0;
  for (std::int64_t step = 0; step < num_pilot_steps; ++step) {
    add_step(pilot, step, trace, batches.batch());
    batches.advance(stride);
  }
  for (std::int64_t layer = 0; layer < trace.model.num_layers(); ++layer) {
    const auto steps = pilot.steps_of_experts(layer);
    num_active += std::accumulate(steps.begin(), steps.end(), std::int64_t{0});
  }
  return static_cast<double>(num_active) / static_cast<double>(num_pilot_steps);
}

}  // namespace

ActivationSample sample_of(const RoutingTrace& trace, std::span<const RequestRows> requests,
                           const BatchSampleSettings& settings) {
  METRO_REQUIRE(!settings.batch_sizes.empty() && settings.num_steps >= 0, fmt::format("{} steps", settings.num_steps));
  struct Source {
    TraceBatches batches;
    double share;   // of the steps
    double credit;  // steps that it is owed
  };
  std::vector<Source> sources;
  double sum = 0.0;
  for (const std::int64_t batch_size : settings.batch_sizes) {
    const std::uint64_t seed = settings.seed + static_cast<std::uint64_t>(sources.size());
    TraceBatches batches(requests, batch_size, 1, seed);
    const double share = 1.0 / mean_active(trace, requests, batch_size, seed);
    sum += share;
    sources.push_back({std::move(batches), share, 0.0});
  }
  ActivationSample sample(settings.num_steps, trace.model.num_layers(), trace.model.num_experts);
  for (std::int64_t step = 0; step < settings.num_steps; ++step) {
    for (Source& source : sources) {
      source.credit += source.share / sum;
    }
    Source& next = *std::max_element(sources.begin(), sources.end(),
                                     [](const Source& a, const Source& b) { return a.credit < b.credit; });
    next.credit -= 1.0;
    add_step(sample, step, trace, next.batches.batch());
    next.batches.advance(stride);
  }
  return sample;
}

}  // namespace metro
