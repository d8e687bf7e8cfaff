// How busy the machine is, for benchmarks to say beside their times.
#pragma once

#include <array>

namespace metro {

// Over 1, 5 and 15 minutes. Throws Error(machine) where the system does not say.
std::array<double, 3> load_average();

}  // namespace metro
