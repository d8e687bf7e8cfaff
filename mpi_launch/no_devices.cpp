// The devices of a build whose kernels run on the host: none.
#include "base/error.hpp"
#include "mpi_launch/visible_devices.hpp"

namespace metro {

bool has_devices() {
  return false;
}

std::vector<Device> visible_devices() {
  METRO_REQUIRE(has_devices(), "this build computes on the host");
  return {};
}

std::string device_software() {
  return "";
}

}  // namespace metro
