// Start and end of the queue of kernels/queue.hpp, for the room that starts Kokkos.
#pragma once

namespace metro {

// After Kokkos::initialize, once. device: as the device runtime numbers those that this process sees; it is the one
// that Kokkos uses. Throws Error(machine) if it cannot be used. Does nothing where kernels run on the host.
void start_queue(int device);

// Before Kokkos::finalize, when all Buffers, Mirrors and KernelGraphs are gone. Does nothing if there is no queue.
void stop_queue();

}  // namespace metro
