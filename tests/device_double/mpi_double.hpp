// A test double of what a CUDA-aware MPI does beyond the one of this host, on the double of the CUDA runtime: sends and
// receives of device memory. What is received is written when the receive is found complete, and not before. An MPI
// that is not aware refuses device memory with an error and one line on stderr; so is every other call with device
// memory refused by the memory itself, as in Open MPI, whose collectives that do not block are not aware.
//
// A whole program is set up by the environment: METRO_DOUBLE_AWARE_MPI=1.
#pragma once

#include <cstdint>

namespace metro::mpi_double {

// From now on. At first as the environment says; without it, no.
void be_aware(bool is_aware);

// Sends and receives of device memory so far.
std::int64_t num_device_messages();

}  // namespace metro::mpi_double
