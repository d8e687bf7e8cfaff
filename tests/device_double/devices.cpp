// The devices that a process sees.
#include "double_state.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace metro::device_double {

namespace {

// Those that CUDA_VISIBLE_DEVICES leaves, in its order; as with CUDA the first that does not exist ends the list.
std::vector<int> visible_devices() {
  std::vector<int> devices;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int device = 0; device < settings().num_devices; ++device) {
      devices.push_back(device);
    }
    return devices;
  }
  while (*text != '\0') {
    char* end = nullptr;
    const long device = std::strtol(text, &end, 10);
    if (end == text || device < 0 || device >= settings().num_devices) {
      break;
    }
    devices.push_back(static_cast<int>(device));
    text = *end == ',' ? end + 1 : end;
  }
  return devices;
}

// Calls work(number of the device in the machine) if the process sees `device`.
template <class F>
cudaError_t with_device(int device, const F& work) {
  const std::vector<int> devices = visible_devices();
  if (device < 0 || device >= static_cast<int>(devices.size())) {
    return cudaErrorInvalidDevice;
  }
  return work(devices[static_cast<std::size_t>(device)]);
}

constexpr int first_bus = 0x1b;

}  // namespace

int& current_device() {
  thread_local int device = 0;
  return device;
}

}  // namespace metro::device_double

using namespace metro::device_double;

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&] {
    *count = static_cast<int>(visible_devices().size());
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] {
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    return with_device(device, [&](int /*in_machine*/) {
      current_device() = device;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return call("cudaGetDeviceProperties", [&] {
    return with_device(device, [&](int in_machine) {
      *prop = {};
      std::snprintf(prop->name, sizeof prop->name, "Emulated Device");
      std::snprintf(prop->uuid.bytes, sizeof prop->uuid.bytes, "device %d", in_machine);
      prop->totalGlobalMem = static_cast<std::size_t>(settings().memory_bytes);
      prop->major = 9;
      prop->multiProcessorCount = 1;
      prop->pciBusID = first_bus + in_machine;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return call("cudaDeviceGetPCIBusId", [&] {
    return with_device(device, [&](int in_machine) {
      const int length = std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0",
                                       static_cast<unsigned>(first_bus + in_machine));
      return length < len ? cudaSuccess : cudaErrorInvalidValue;
    });
  });
}
