#include "bench/load_average.hpp"

#include "base/error.hpp"

#include <cstdlib>

namespace metro {

std::array<double, 3> load_average() {
  std::array<double, 3> loads{};
  if (::getloadavg(loads.data(), 3) != 3) {
    throw Error(ExitCode::machine, "the load average of this machine cannot be read");
  }
  return loads;
}

}  // namespace metro
