// Memory that this node can still give to the job.
#pragma once

#include <cstdint>

namespace metro {

// The smaller of the kernel's MemAvailable and what the process's cgroup (v2 or v1) has left, in bytes.
// Throws Error(machine) if the kernel does not tell.
std::int64_t free_memory_bytes();

}  // namespace metro
