// The kernels of a decode step: what a rank launches, in order, and how often. The one table of it; a test holds it
// against what a step of a decoder launches. On a GPU each costs a launch, or a node of a graph.
#pragma once

#include "bench/model_shapes.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

enum class StepPart { ends, attention, experts, dense_mlp };  // of a step; of every layer; of a layer with or without

struct StepLaunch {
  StepPart part = StepPart::ends;
  std::string what;
  std::int64_t times = 0;
};

enum class RoutedBy { host, device };

// Of a step with one decode row at least on every rank and rows that all ranks gather; without sampling. num_activated:
// experts of the busiest rank, of which the launches depend only if the host lists them. Kernels alone: where they do
// not use the memory of the host, small copies come on top.
std::vector<StepLaunch> step_launches(const ModelShape& shape, RoutedBy routed_by, std::int64_t num_activated);

// Graphs that those of a step make if the device routes: what lies between two exchanges is one. The last layer has
// experts.
std::int64_t num_graphs_of_step(const ModelShape& shape);

// Of one `part`.
std::int64_t num_launches_of(const std::vector<StepLaunch>& launches, StepPart part);

// Of all layers and both ends.
std::int64_t num_launches_of_step(const ModelShape& shape, const std::vector<StepLaunch>& launches);

}  // namespace metro
