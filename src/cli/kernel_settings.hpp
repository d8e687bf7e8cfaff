// SIMD level and threads of the kernels.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <string>

namespace metro {

// Collective. Sets the level of that name; "auto" is the least of the best of all ranks. Throws AgreedError(usage),
// naming `key`, for another name and for a level that a rank's CPU lacks.
void use_simd_level(const std::string& name, const std::string& key, Transport& transport);

// Collective. A line for people if a rank was bound to fewer CPUs than it has threads, else empty: mpirun binds a rank
// to one core where there are at most two, and threads that share a core wait for each other. usable_cpus: of this
// rank.
std::string binding_warning(std::int64_t num_threads, std::int64_t usable_cpus, Transport& transport);

}  // namespace metro
