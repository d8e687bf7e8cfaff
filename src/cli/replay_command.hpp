// `metro replay`: a routing trace in; what every policy would activate over every placement, out.
#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

// As given on the command line; replay_command() checks what the trace must say.
struct ReplayOptions {
  std::string trace_path;
  std::vector<std::string> placements{"eplb"};
  std::vector<std::string> policies;  // empty: all
  std::vector<std::int64_t> batch_sizes{32};
  std::vector<std::int64_t> rank_counts{8};
  std::vector<double> replications{1.0, 1.125, 1.25, 1.5};
  std::vector<std::string> layers;    // "3" or "3-7", layers of the model; empty: all that are in the trace
  std::int64_t moves_per_slot = 200;  // length of the search for activation-aware
  std::int64_t num_draws = 200;
  std::int64_t stride = 16;
  std::uint64_t seed = 0;
  std::string rows;  // decode, prefill or all; empty: decode if there are any, else all
  std::string plan_on = "even";
  std::string judge_on = "odd";
  std::string json_path, csv_path, dump_path;  // empty: not written
  bool overwrite = false;
};

// Replays, prints the table and writes the files that were asked for. Throws Error(input) for the trace, Error(usage)
// for an option that does not fit it or a file in the way.
ExitCode replay_command(const ReplayOptions& options);

}  // namespace metro
