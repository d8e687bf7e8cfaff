// `metro bench scaling`: what a decode step would take on many ranks of machines that are not here, and from which
// number of ranks more of them do not pay, by the model of scaling_model.hpp. Nothing is measured.
#pragma once

#include "bench/paper_options.hpp"
#include "bench/routed_rows.hpp"
#include "bench/scaling_model.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct ScalingBenchOptions : PaperOptions {
  ScalingBenchOptions() { ranks = {8, 16, 32, 64, 128, 256, 512, 1024}; }

  std::string machine = "h100";  // see published_machine()

  // In place of the machine's own; 0: that. GB/s, GB and Tflop/s of a rank.
  std::int64_t ranks_per_node = 0;
  double memory_gbs = 0.0, memory_gb = 0.0, tflops = 0.0, inside_gbs = 0.0, network_gbs = 0.0;

  // In place of those of CostFigures; negative: that.
  double latency_us = -1.0, hop_us = -1.0, message_us = -1.0;
  double routing_us = -1.0, routing_rank_ns = -1.0, routing_assignment_ns = -1.0, sequence_ns = -1.0;
  std::string json_path;  // empty: no file
};

struct ScalingPoint {
  std::int64_t num_ranks = 0, batch = 0, slots_per_rank = 0;
  RoutedRows rows;
  StepCost cost;
  RankMemory memory;
  bool fits = false;            // in the memory of a rank
  double tokens_per_s = 0.0;    // of a rank
  double efficiency = 0.0;      // tokens_per_s over that of the fewest ranks that fit; 0 with fewer
  double gathered_share = 0.0;  // of a step, that the bytes of an allgather of all rows would take
};

// The fewest ranks of which something is true, beyond the fewest that fit; 0: none.
struct ScalingLimits {
  std::int64_t fitting = 0;
  std::int64_t fastest = 0;          // most tokens/s of a rank
  std::int64_t half_efficiency = 0;  // less than half of the tokens/s of a rank
  std::int64_t replicated_work = 0;  // routing and schedule more than a tenth of a step
  std::int64_t gathered_rows = 0;    // gathered_share above a tenth
};

// a100, h100, h200, b200 or cpu as published. `option` is what the name was given to ("bench scaling: --machine").
// Throws Error(usage) for another name.
Machine published_machine(const std::string& name, const std::string& option);
// As the options change them.
Machine machine_of(const ScalingBenchOptions& options);
CostFigures figures_of(const ScalingBenchOptions& options);

// Throws Error(usage) for options out of range, `bench` ("bench scaling") in front; `machine` is not looked at.
void check_scaling(const ScalingBenchOptions& options, const std::string& bench);

// `models`, or all that are published if there are none.
std::vector<std::string> models_or_published(const std::vector<std::string>& models);

// Of as many rows as the options need.
RowSampler sampler_of(const ScalingBenchOptions& options, const ModelShape& shape);

// For all numbers of ranks, with one batch of each rank. sampler: of at least as many rows as there are on all ranks.
std::vector<ScalingPoint> scaling_points(const ScalingBenchOptions& options, const ModelShape& shape,
                                         const RowSampler& sampler, std::int64_t batch);
ScalingLimits limits_of(const std::vector<ScalingPoint>& points);

// Prints tables and writes options.json_path. Throws Error(usage) for options out of range.
void bench_scaling(const ScalingBenchOptions& options, std::FILE* out);

}  // namespace metro
