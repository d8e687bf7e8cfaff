// Kokkos of this process, and the queue in which kernels run: start, stop, name. The differences between Kokkos
// versions in doing so stay in the .cpp file; this header includes no Kokkos, so that any unit may use it.
#pragma once

#include <cstdint>
#include <string>

namespace metro {

// Initialises Kokkos, without looking at the command line. num_threads: host threads, >= 1; a Kokkos
// whose host backend has no threads takes one, and the kernels share their work among threads of their own (see
// kernels/cpu_settings.hpp). device: the one that kernels run on, as this process numbers them; without meaning where they
// run on the host. A backend that does not start is Error(machine). `warnings`: whether Kokkos may print its own; one
// rank of a job is enough.
void initialise_kokkos(std::int64_t num_threads, bool warnings, std::int64_t device = 0);

// Does nothing when Kokkos is not initialised. All Kokkos memory must have been released.
void finalise_kokkos();

// Version and backends, "Kokkos 3.4.1 (Serial)". Usable at any time.
std::string kokkos_description();

}  // namespace metro
