#include "transport/mpi_abort.hpp"

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/last_words.hpp"
#include "transport/mpi_check.hpp"

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>

namespace metro {

void abort_job(int exit_code) {
  leave_silently();
  // A full pipe or a launcher that does not answer shall not keep this process.
  std::optional<Deadline> deadline;
  try {
    deadline.emplace("MPI_Abort", 1.0);
  } catch (const std::exception&) {
    std::fputs("metro: MPI_Abort is called without a deadline: no thread can be started\n", stderr);
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  if (mpi_is_running()) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
  }
  ::_exit(exit_code);
}

}  // namespace metro
