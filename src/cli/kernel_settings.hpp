// SIMD level and threads of the kernels.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <string>

namespace metro {

// Collective. Sets the level of that name; "auto" is the least of the best of all ranks. Throws AgreedError(usage),
// naming `key`, for another name and for a level that a rank's CPU lacks.
void use_simd_level(const std::string& name, const std::string& key, Transport& transport);

// Collective. Rank 0 warns on standard error if a rank was bound to fewer CPUs than it has threads: mpirun binds a rank
// to one core where there are at most two, and threads that share a core wait for each other.
void warn_of_binding(std::int64_t num_threads, Transport& transport);

}  // namespace metro
