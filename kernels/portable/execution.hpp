// Start and end of what Kokkos launches kernels on (portable::execution() in kokkos_compat.hpp); without Kokkos in it,
// for units that are not compiled for a device.
#pragma once

namespace metro::portable {

// native_queue: the stream that kernels shall run in.
void start_execution(void* native_queue);
void stop_execution();

}  // namespace metro::portable
