// What the kernels of the emulated device ask for (kernels/portable/emulated_device.hpp).
#include "double_state.hpp"
#include "kernels/portable/emulated_device.hpp"

#include "base/error.hpp"

#include <utility>

namespace metro::emulated {

using device_double::Progress;

void enqueue_kernel(void* native_queue, const char* label, std::function<void()> launch) {
  // Counted and made to fail under this name.
  const cudaError_t result = device_double::call("launch", [&] {
    return device_double::enqueue(static_cast<cudaStream_t>(native_queue), [launch = std::move(launch)] {
      const device_double::DeviceAccess access;
      launch();
      return Progress::done;
    });
  });
  if (result != cudaSuccess) {
    throw Error(ExitCode::machine, std::string("launch of ") + label + " failed: " + cudaGetErrorString(result));
  }
}

bool is_kernel_memory(const void* pointer) {
  return device_double::is_device_memory(pointer, 0);
}

}  // namespace metro::emulated
