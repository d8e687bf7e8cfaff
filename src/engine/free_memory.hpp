// Memory that this node can still give to the job.
#pragma once

#include <cstdint>
#include <string>

namespace metro {

// The smaller of the kernel's MemAvailable and what the process's cgroup and all groups above it (v2 or v1) have left,
// in bytes; cached file pages that can be dropped count as left. `root` stands before /proc and /sys (tests).
// Throws Error(machine) if the kernel does not tell.
std::int64_t free_memory_bytes(const std::string& root = "");

}  // namespace metro
