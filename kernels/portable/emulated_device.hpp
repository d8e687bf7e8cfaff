// What kernels ask of the emulated device (METRO_EMULATED_DEVICE=1): a build for tests whose kernels have the form for
// devices, run late and in order in the queue of a test double of the CUDA runtime, and whose memory is out of reach of
// host code. tests/device_double defines these functions.
#pragma once

#include <functional>

namespace metro::emulated {

// Puts `launch` into the queue, or into the graph that is being recorded.
void enqueue_kernel(void* native_queue, const char* label, std::function<void()> launch);

// Whether the device has this address in its memory.
bool is_kernel_memory(const void* pointer);

}  // namespace metro::emulated
