// What a decode step reads and launches on a GPU, on paper: bytes by part from scaling_model.hpp, kernels from
// step_launches.hpp, and what both take. docs/gpu.md has the formulas and what is left out. Times in seconds.
#pragma once

#include "bench/scaling_bench.hpp"
#include "bench/step_launches.hpp"

#include <cstdint>

namespace metro {

// What launches cost. All assumed: nothing here has been measured on a GPU.
struct LaunchCosts {
  double launch_s = 2.5e-6;  // of the host, for a kernel that is launched alone
  double gap_s = 1e-6;       // of the GPU, from the end of a kernel to the begin of the next
  double graph_s = 8e-6;     // of the host, to launch a graph
};

// Read by the busiest rank, of one layer with experts.
struct LayerBytes {
  double attention = 0.0;  // weights
  double kv = 0.0;
  double beside_experts = 0.0;  // router, shared expert
  double experts = 0.0;         // those it activates
  double total() const { return attention + kv + beside_experts + experts; }
};
LayerBytes layer_bytes(const ModelShape& shape, double batch, double lambda, const CostFigures& figures);

// Of a whole step: all layers, dense layers and the head.
double step_bytes(const ModelShape& shape, double batch, double lambda, const CostFigures& figures);

struct GpuStep {
  LayerBytes layer;
  double bytes = 0.0;               // of the step
  std::int64_t layer_launches = 0;  // of a layer with experts
  std::int64_t launches = 0;        // of the step
  std::int64_t graphs = 0;          // of the step, where kernels are recorded: one between exchanges
  double read_s = 0.0;              // memory (or arithmetic, where that is more)
  double exchange_s = 0.0;
  double alone_s = 0.0;     // the step with kernels launched one by one: host and GPU work side by side
  double recorded_s = 0.0;  // the step from graphs
};
// point: of scaling_points(), which says how the rows spread and what the step takes without launches.
GpuStep gpu_step(const ModelShape& shape, const ScalingPoint& point, const CostFigures& figures,
                 const LaunchCosts& costs);

}  // namespace metro
