// Oracles for the routing policies, each found in another way than the product code finds it.
#pragma once

#include "routing/instances.hpp"

namespace metro::test {

// The smallest lambda of all assignments, by trying all of them. Up to about 8 experts on 4 ranks.
std::int32_t lambda_by_brute_force(const Instance& instance);

// The smallest lambda for which every active expert finds a host: a matching with capacities that grows one expert at
// a time and sends away experts that can go elsewhere. Any size.
std::int32_t lambda_by_matching(const Instance& instance);

// `exact` as it is defined, step by step and without any shortcut. [num_experts], -1 for idle experts.
std::vector<std::int32_t> exact_by_definition(const Instance& instance);

}  // namespace metro::test
