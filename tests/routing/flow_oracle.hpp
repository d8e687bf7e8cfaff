// The question "is there an assignment with at most lambda active experts per rank?" as a maximum flow, answered by the
// Boost Graph Library: an oracle that shares neither code nor method with the router.
#pragma once

#include "routing/instances.hpp"

#include <cstdint>

namespace metro::test {

// source -> active expert (1) -> its hosts (1) -> sink (lambda): true if a flow serves every active expert.
bool is_feasible_by_flow(const Instance& instance, std::int32_t lambda);

}  // namespace metro::test
