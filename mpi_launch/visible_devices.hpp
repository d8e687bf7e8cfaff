// The devices that this process sees, as the device runtime tells. One of two files stands behind it: cuda_devices.cpp,
// or no_devices.cpp in a build whose kernels run on the host.
#pragma once

#include "mpi_launch/devices.hpp"

#include <string>
#include <vector>

namespace metro {

// Whether this build computes on devices.
bool has_devices();

// In the order of their numbers, at least one. Throws Error(machine) that says whether the driver is missing or too
// old, there is no device, or none is visible. A Bug without has_devices().
std::vector<Device> visible_devices();

// "CUDA 13.0 (driver: 13.0)", or "" without has_devices().
std::string device_software();

}  // namespace metro
