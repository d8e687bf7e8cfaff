// What the launcher left each rank of its node, for the start-up table.
#pragma once

#include "report/run_report.hpp"
#include "transport/transport.hpp"

#include <vector>

namespace metro {

// Collective. Of every rank. [size]
std::vector<RankBinding> gather_bindings(Transport& transport);

}  // namespace metro
