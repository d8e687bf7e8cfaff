// Whether MPI sends from and receives into memory of a device (a CUDA-aware MPI).
#pragma once

#include "transport/transport.hpp"

namespace metro {

// Collective, after MPI has started. Whether the MPI of every rank says of itself that it does: Open MPI can be asked;
// any other counts as one that does not.
bool mpi_takes_device_memory(Transport& transport);

}  // namespace metro
