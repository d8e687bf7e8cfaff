// Where kernels run and in which order. All kernels, copies and recorded graphs of a process go through one queue and
// run one after the other. Where kernels run on the host each of them is over when its function returns, and what
// follows here does nothing; on a device functions return at once, and whoever reads results on the host waits first.
#pragma once

#include <cstdint>
#include <functional>

namespace metro {

// Whether kernels read and write the memory of the host. If not, memory of kernels (Buffer) must not be touched by host
// code, nor memory of the host be given to kernels.
bool kernels_use_host_memory();

// Returns when everything in the queue has run. Throws Error(machine) if something in it failed, naming what the
// device says, and what the check of set_waiting_check() throws.
void wait_for_kernels();

// check(false) is called again and again while wait_for_kernels() waits, check(true) when everything has run without a
// failure; it may throw: an exchange with other ranks is part of the queue, and one that does not come must not be
// waited for without end, nor one that has failed be taken for one that is over. Only on the thread that sets it: MPI
// is for one thread. Empty: none.
void set_waiting_check(std::function<void(bool is_over)> check);

// In queue order. host memory: of a Mirror, untouched until the queue has come that far.
void queue_copy_to_kernels(void* to, const void* from_host, std::int64_t num_bytes);
void queue_copy_to_host(void* to_host, const void* from, std::int64_t num_bytes);
// Between memory of kernels.
void queue_copy(void* to, const void* from, std::int64_t num_bytes);

// The native handle (cudaStream_t) for libraries that enqueue work of their own; nullptr where kernels run on the host.
void* native_queue();

// Kernels and copies enqueued so far by this process; those of a graph count when it is launched. One each on a device:
// what a launch costs there.
std::int64_t num_launches();

}  // namespace metro
