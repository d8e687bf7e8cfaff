// `metro run`: a deck in, completions out. The one command that makes the process a member of a job.
#pragma once

#include "base/error.hpp"

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

// Who this process is in the job: what main() needs to report a failure once the World is gone.
struct JobIdentity {
  bool running = false;  // other ranks wait for this one, so a failure here must end the whole job
  std::int64_t rank = 0;
  std::string host;
};

// Runs the deck. argc, argv: those of main(), for MPI. Fills `job` as soon as this process is a rank of a job.
// An AgreedError is reported within: rank 0 prints it, and all ranks take down their World and return its exit code.
// Throws Error when this rank alone failed, Bug for a broken invariant; main() then ends the job if job.running.
ExitCode run_command(const RunOptions& options, int* argc, char*** argv, JobIdentity& job);

}  // namespace metro
