#include "cli/on_ranks.hpp"

#include "base/last_words.hpp"

#include <cstdio>

namespace metro {

ExitCode on_ranks(const Process& process, const std::function<ExitCode(World&)>& work) {
  process.job.running = true;  // from MPI_Init on, others may wait for this process
  World world(process.argc, process.argv);
  report_crashes();
  ExitCode exit_code = ExitCode::done;
  try {
    exit_code = work(world);
  } catch (const AgreedError& error) {
    // Every rank is here: one speaks, all leave in an orderly way.
    if (world.rank() == 0) {
      std::fprintf(stderr, "metro: error: %s\n", one_line(error.what()).c_str());
    }
    exit_code = error.exit_code();
  }
  process.job.running = false;
  return exit_code;
}

std::unique_ptr<Transport> transport_for(const World& world, double timeout_s) {
  return world.size() == 1 ? make_self_transport(timeout_s) : make_mpi_transport(timeout_s);
}

}  // namespace metro
