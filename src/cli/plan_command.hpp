// `metro plan`: a routing trace or loads in; a placement file and the table that explains it, out. With a model alone:
// the memory of a rank, and on how many GPUs it fits.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// As given on the command line; plan_command() checks what the files must say.
struct PlanOptions {
  std::string trace_path, loads_path;  // one of them, or both: then the loads are for EPLB
  std::string placement;               // empty: activation-aware with a trace, else eplb
  std::int64_t num_ranks = 0;          // 0: 8, or for memory as few as it takes
  std::int64_t num_nodes = 1;
  std::int64_t num_groups = 0;  // 0: the model's, or 1
  double replication = 1.0;
  std::int64_t slots_per_rank = 0;  // 0: from replication
  std::vector<std::int64_t> batch_sizes{4, 8, 16};
  std::int64_t num_steps = 12000;
  std::int64_t moves_per_slot = 1000;
  bool spread_over_layers = false;
  std::uint64_t seed = 0;
  std::int64_t num_threads = 1;
  std::string plan_on = "all";
  std::string rows;        // decode, prefill or all; empty: decode if there are any, else all
  std::string model_path;  // checkpoint or config.json: bytes and groups; empty: not shown
  std::string output;      // empty: not written
  bool overwrite = false;
  std::vector<std::int64_t> gpu_gigabytes{40, 80, 141, 192};  // for memory
  std::vector<std::string> overrides;                         // for memory: "table.key=value" of a deck
};

// Plans, with progress on standard error, writes the placement and prints the table. Throws Error(usage) for options
// that do not fit each other or the files, Error(input) for the trace, Error(checkpoint) for the model.
ExitCode plan_command(const PlanOptions& options);

}  // namespace metro
