// What every call of MPI goes through.
#pragma once

#include <source_location>

namespace metro {

// Throws Error(machine) with MPI's own text, the name of the call and its place, unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call, std::source_location where = std::source_location::current());

// Whether MPI has started and not ended: it ends the process when most of it is called before or after.
bool mpi_is_running();

}  // namespace metro
