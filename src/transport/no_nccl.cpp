// The exchange by NCCL in a build without it: none.
#include "base/error.hpp"
#include "transport/nccl_exchange.hpp"

namespace metro {

bool has_nccl() {
  return false;
}

std::string nccl_software() {
  return "";
}

std::unique_ptr<DeviceExchange> make_nccl_exchange(Transport& transport, double /*timeout_s*/) {
  METRO_REQUIRE(has_nccl(), "rank " + std::to_string(transport.rank()) + " asks for NCCL in a build without it");
  return nullptr;
}

}  // namespace metro
