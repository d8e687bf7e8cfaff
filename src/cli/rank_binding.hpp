// What the launcher left each rank of its node, for the start-up table.
#pragma once

#include "mpi_launch/devices.hpp"
#include "report/run_report.hpp"
#include "transport/transport.hpp"

#include <vector>

namespace metro {

// Collective. Of every rank. devices: that they compute on, the same on all ranks; may be empty. [size]
std::vector<RankBinding> gather_bindings(Transport& transport, const DeviceMap& devices);

}  // namespace metro
