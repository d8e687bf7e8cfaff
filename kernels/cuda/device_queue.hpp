// The stream behind kernels/queue.hpp, for the other files of this folder.
#pragma once

#include <cuda_runtime_api.h>

namespace metro::cuda {

// Makes the queue's device that of the calling thread: a new thread has device 0, and what it calls there would make a
// context, which takes memory. Requires start_queue().
void use_device();

// With use_device(): any thread may use it.
cudaStream_t queue();

}  // namespace metro::cuda
