// The SIMD level of the kernels, the same on all ranks.
#pragma once

#include "transport/transport.hpp"

#include <string>

namespace metro {

// Collective. Sets the level of that name; "auto" is the least of the best of all ranks. Throws AgreedError(usage),
// naming `key`, for another name and for a level that a rank's CPU lacks.
void use_simd_level(const std::string& name, const std::string& key, Transport& transport);

}  // namespace metro
