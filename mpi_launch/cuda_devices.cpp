// The devices that this process sees, as the CUDA runtime tells. Nothing here makes a context on a device.
#include "base/error.hpp"
#include "kernels/cuda/cuda_check.hpp"
#include "mpi_launch/visible_devices.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <iterator>

namespace metro {

namespace {

// 13000 is "13.0", 12040 is "12.4".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string limit_text() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "CUDA_VISIBLE_DEVICES is not set"
                            : fmt::format("CUDA_VISIBLE_DEVICES is \"{}\"", visible);
}

[[noreturn]] void throw_driver_error() {
  int driver = 0;
  int runtime = 0;
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  if (driver == 0) {
    throw Error(ExitCode::machine, fmt::format("there is no NVIDIA driver on this machine: run on one with a GPU, or a "
                                               "metro that was built for CPUs (this one uses CUDA {})",
                                               version_text(runtime)));
  }
  throw Error(ExitCode::machine,
              fmt::format("the NVIDIA driver of this machine is too old: it knows CUDA {}, and this metro uses CUDA {}",
                          version_text(driver), version_text(runtime)));
}

int num_visible() {
  int num_devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&num_devices);
  if (result == cudaErrorInsufficientDriver) {
    throw_driver_error();
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && num_devices == 0)) {
    throw Error(ExitCode::machine, fmt::format("this process sees no GPU ({})", limit_text()));
  }
  if (result != cudaSuccess) {
    throw Error(ExitCode::machine,
                fmt::format("cudaGetDeviceCount failed: {} ({})", cuda::text_of(result), limit_text()));
  }
  return num_devices;
}

Device device_of(int idx) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, idx), "cudaGetDeviceProperties");
  std::array<char, 32> pci_bus_id{};
  cuda::check(cudaDeviceGetPCIBusId(pci_bus_id.data(), static_cast<int>(pci_bus_id.size()), idx),
              "cudaDeviceGetPCIBusId");
  Device device;
  device.name = properties.name;
  device.pci_bus_id = pci_bus_id.data();
  device.memory = static_cast<std::int64_t>(properties.totalGlobalMem);
  // Parts of one GPU (MIG) have its PCI bus id in common, and a UUID each.
  for (const char byte : properties.uuid.bytes) {
    fmt::format_to(std::back_inserter(device.id), "{:02x}", static_cast<unsigned char>(byte));
  }
  return device;
}

}  // namespace

bool has_devices() {
  return true;
}

std::vector<Device> visible_devices() {
  const int num_devices = num_visible();
  std::vector<Device> devices;
  for (int idx = 0; idx < num_devices; ++idx) {
    devices.push_back(device_of(idx));
  }
  return devices;
}

std::string device_software() {
  int driver = 0;
  int runtime = 0;
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("CUDA {} (driver: {})", version_text(runtime), version_text(driver));
}

}  // namespace metro
