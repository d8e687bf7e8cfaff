// `metro bench kernels`: how fast the expert FFN and the linear layers read their weights, as a share of what memory
// gives. Reading alone and every kernel take turns, so that what else the machine does hits both alike.
// Kokkos must be running. SIMD level and threads of the kernels are left as set by the last setting; on a device they
// change nothing.
#pragma once

#include "base/stored_type.hpp"
#include "bench/model_shapes.hpp"
#include "kernels/memory_speed.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace metro {

struct KernelBenchOptions {
  std::string model = "qwen3-30b-a3b";
  std::int64_t hidden = 0;        // 0: of the model. With either of the two, only experts are timed
  std::int64_t expert_width = 0;  // 0: of the model
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16};
  std::vector<std::int64_t> threads{1};
  std::vector<std::string> simd{"auto"};
  std::vector<std::string> stored_types{"bf16"};  // bf16, f32, int8, fp8, mxfp4: in turn
  std::int64_t weight_mib = 1280;                 // different weights that a pass reads: beyond any cache
  std::int64_t experts_per_call = 16;             // as a rank activates in a layer
  std::int64_t repetitions = 7;                   // at least
  bool experts_only = false;
  std::string json_path;  // empty: no file
};

// What is timed.
struct KernelShapes {
  std::string model;
  std::int64_t hidden = 0, expert_width = 0;
  std::vector<LinearShape> linears;
};

// One kernel with one number of rows. GB/s of weights, 1 GB = 10^9 bytes; `limit`: reading alone, timed beside it.
struct KernelTiming {
  std::string kernel;
  StoredType type = StoredType::bf16;
  std::int64_t num_rows = 0;
  std::int64_t num_weights = 0;          // of one expert or matrix
  double bytes = 0.0;                    // of one expert or matrix
  double us_min = 0.0, us_median = 0.0;  // per expert or matrix
  double gb_per_s_max = 0.0, gb_per_s_median = 0.0;
  double limit_max = 0.0, limit_median = 0.0;
  double gflop_per_s_median = 0.0;  // two operations per weight and row
  double peak_gflop_per_s = 0.0;    // median of fused multiply-adds in registers, timed beside it; 0 on a device
  double share_of_peak() const { return peak_gflop_per_s > 0.0 ? gflop_per_s_median / peak_gflop_per_s : 0.0; }
  double ratio_of_best() const { return gb_per_s_max / limit_max; }
  double ratio_of_medians() const { return gb_per_s_median / limit_median; }
};

struct KernelSetting {
  std::string simd;
  std::int64_t num_threads = 0;
  ReadingOrder limit_order;  // the fastest way to read
  std::vector<KernelTiming> timings;
};

// Throws Error(usage) for a name that is no stored type.
StoredType bench_type_of(const std::string& name);

// Runs all settings, prints a table and writes options.json_path. Throws Error(usage) for options out of range.
void bench_kernels(const KernelBenchOptions& options, std::FILE* out);

// Times all kernels of one setting. Options are in range.
KernelSetting time_kernels(const KernelBenchOptions& options, const KernelShapes& shapes, const std::string& simd,
                           std::int64_t num_threads);

}  // namespace metro
