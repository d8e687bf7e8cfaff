// Runs a command on all ranks of an mpirun or srun, also where there is just one process.
#pragma once

#include "base/error.hpp"
#include "mpi_launch/world.hpp"
#include "transport/transport.hpp"

#include <functional>
#include <memory>

namespace metro {

// What main() needs to report a failure once the World is gone.
struct JobState {
  bool running = false;  // other ranks wait for this one, so a failure here must end the whole job
};

// The process as main() knows it.
struct Process {
  int* argc;
  char*** argv;  // for MPI
  JobState& job;
};

// Becomes a rank and calls `work`. Fills process.job as soon as this process is a rank of a job.
// An AgreedError is reported within: rank 0 prints it, and all ranks take down their World and return its exit code.
// Throws Error when this rank alone failed, Bug for a broken invariant; main() then ends the job if job.running.
ExitCode on_ranks(const Process& process, const std::function<ExitCode(World&)>& work);

// Between all ranks of `world`, which must outlive it.
std::unique_ptr<Transport> transport_for(const World& world, double timeout_s);

}  // namespace metro
