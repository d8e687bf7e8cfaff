// From a routing trace to an ActivationSample: decode batches of several sizes, drawn as a server would form them.
#pragma once

#include "placement/activation_sample.hpp"
#include "trace/requests_of_trace.hpp"
#include "trace/routing_trace.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

struct BatchSampleSettings {
  std::vector<std::int64_t> batch_sizes;  // sequences of all ranks together; at least one, all >= 1
  std::int64_t num_steps = 12000;         // of all batch sizes together
  std::uint64_t seed = 0;
};

// Steps of the batch sizes in turn. A batch size has steps in inverse proportion to the experts that its batches
// activate: an expert more on the busiest rank costs a small batch a larger share of its time. The layers of the sample
// are those of the trace. Throws Error(usage) if a batch size exceeds the number of requests.
ActivationSample sample_of(const RoutingTrace& trace, std::span<const RequestRows> requests,
                           const BatchSampleSettings& settings);

}  // namespace metro
