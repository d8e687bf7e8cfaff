// What the benchmarks that measure nothing are asked about alike: models, jobs, batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct PaperOptions {
  std::vector<std::string> models;                  // empty: all that are published
  std::vector<std::int64_t> ranks;                  // ascending
  std::vector<std::int64_t> batch_sizes{1, 8, 32};  // rows of each rank
  std::string policy = "exact";
  double replication = 1.0;  // at least; a rank has at least one slot
  double skew = 0.7;         // of SyntheticBatches
  std::int64_t context = 2048;
  std::string weights = "bf16";  // or int8
};

}  // namespace metro
