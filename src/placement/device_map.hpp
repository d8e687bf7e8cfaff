// Device maps: placements as other serving systems publish them, a NumPy array (.npy) [devices, layers, experts] that
// is 1 where a device holds an expert. Devices may hold different numbers of experts.
#pragma once

#include "placement/placement.hpp"

#include <string>

namespace metro {

// Experts of a device in ascending order; slots_per_rank is the largest number of experts on any device in any layer,
// and what a device has less of are empty slots at its end. Elements may be integers of 1 to 8 bytes or bool, little
// endian, in C order. Throws Error(usage) naming the file and what is wrong: no .npy file, another element type, order
// or number of dimensions, truncated, a value other than 0 and 1, an expert that no device holds.
Placement read_device_map(const std::string& path);

}  // namespace metro
