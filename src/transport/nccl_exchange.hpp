// The exchange of memory of devices by NCCL: from device to device, in the queue of the kernels, without the host. One
// of two files stands behind it: nccl_exchange.cpp, or no_nccl.cpp in a build without NCCL.
//
// How it ends: an error of NCCL, found when something is enqueued or while the host waits for kernels, aborts the
// communicator, so that nothing on the device waits any more, and is Error(machine) with NCCL's own text. Ranks that do
// not come end the job by Transport::watch(), which names them.
#pragma once

#include "transport/device_exchange.hpp"

#include <memory>
#include <string>

namespace metro {

bool has_nccl();

// "NCCL 2.28.9", or "" without it.
std::string nccl_software();

// Collective. Kernels run on a device that no other rank uses, and their queue has started; the exchange ends before
// the queue, and after every graph that it was recorded in. Throws AgreedError(machine) with NCCL's text, and what
// NCCL_SOCKET_IFNAME says, if NCCL does not start on a rank, or has not connected all of them after timeout_s (> 0); a
// Bug without has_nccl().
std::unique_ptr<DeviceExchange> make_nccl_exchange(Transport& transport, double timeout_s);

}  // namespace metro
