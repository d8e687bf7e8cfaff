// Counts launches of kernels, for num_launches() of kernels/queue.hpp.
#pragma once

#include <cstdint>

namespace metro::portable {

inline std::int64_t launches_so_far = 0;  // by the one thread that launches kernels

}  // namespace metro::portable
