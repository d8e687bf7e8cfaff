#include "transport/mpi_device_memory.hpp"

#include <mpi.h>

#include <cstdint>

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace metro {

bool mpi_takes_device_memory(Transport& transport) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  std::int64_t refuses = MPIX_Query_cuda_support() == 1 ? 0 : 1;
#else
  std::int64_t refuses = 1;
#endif
  transport.all_reduce_max({&refuses, 1});
  return refuses == 0;
}

}  // namespace metro
