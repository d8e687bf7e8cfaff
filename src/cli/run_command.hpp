// `metro run`: a deck in, completions out. The one command that makes the process a member of a job.
#pragma once

#include "base/error.hpp"
#include "cli/on_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct RunOptions {
  std::string deck_path;
  std::vector<std::string> overrides;  // "table.key=value", in the order of the command line
  bool dry_run = false;                // print the resolved deck and the plan, then stop
  bool overwrite = false;              // replace completions of an earlier run
  bool strict = false;                 // rejected requests give exit code 3
};

// Runs the deck on all ranks; errors as on_ranks().
ExitCode run_command(const RunOptions& options, const Process& process);

}  // namespace metro
