// Which device (GPU) each rank computes on. CUDA numbers the devices that a process sees from 0: those of
// CUDA_VISIBLE_DEVICES, or those that the launcher bound the process to. Order of a start: MPI, rank on its node,
// device, Kokkos, NCCL.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace metro {

struct Device {
  std::string id;           // differs between all devices of a node, the same for all processes
  std::string name;         // "NVIDIA H200"
  std::string pci_bus_id;   // "0000:17:00.0"
  std::int64_t memory = 0;  // bytes

  bool operator==(const Device&) const = default;
};

struct ChosenDevice {
  std::int64_t idx = 0;  // as its rank sees it
  Device device;
  bool is_shared = false;  // with another rank
};

// Of every rank. [size], or empty where kernels run on the host.
using DeviceMap = std::vector<ChosenDevice>;

// rank_to_visible: of each rank the devices that it sees, in its order; at least one each. rank_to_node, rank_to_host:
// [size]. The ranks of a node take their devices in turn, each the first of those it sees that is still free, from the
// one of its place on the node on. Throws Error(usage) where a rank finds none free, unless may_share: it then takes
// the one of its place modulo their number. Depends on nothing else: all ranks find the same.
DeviceMap choose_devices(const std::vector<std::vector<Device>>& rank_to_visible,
                         const std::vector<std::int64_t>& rank_to_node, const std::vector<std::string>& rank_to_host,
                         bool may_share);

// Collective. Asks every rank what it sees, and chooses. Throws AgreedError: (machine) if a rank sees no device,
// (usage) as above.
DeviceMap map_devices(Transport& transport, const std::vector<std::int64_t>& rank_to_node,
                      const std::vector<std::string>& rank_to_host, bool may_share);

// How many ranks compute on the device of each, itself included: they divide its memory. [size], or empty with
// `devices`.
std::vector<std::int64_t> ranks_on_same_device(const DeviceMap& devices, const std::vector<std::int64_t>& rank_to_node);

// The number of the device of a rank, as that rank sees it; 0 if the map is empty.
std::int64_t device_of(const DeviceMap& map, std::int64_t rank);

// "0 NVIDIA H200 0000:17:00.0, 139.8 GiB"; with ", shared" if so.
std::string text_of(const ChosenDevice& chosen);

}  // namespace metro
