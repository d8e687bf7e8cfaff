// The stream behind kernels/queue.hpp, for the other files of this folder.
#pragma once

#include <cuda_runtime_api.h>

namespace metro::cuda {

// Requires start_queue().
cudaStream_t queue();

}  // namespace metro::cuda
