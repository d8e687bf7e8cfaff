#include "transport/exchange_way.hpp"

#include "base/error.hpp"
#include "transport/nccl_exchange.hpp"

namespace metro {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ExitCode::usage, "exchange.transport = \"nccl\": " + why + "; allowed here: \"auto\" and \"mpi\"");
}

}  // namespace

const char* name_of(ExchangeWay way) {
  switch (way) {
    case ExchangeWay::host:
      return "host";
    case ExchangeWay::staged:
      return "mpi through the host";
    case ExchangeWay::aware:
      return "mpi from device memory";
    case ExchangeWay::nccl:
      return "nccl";
  }
  METRO_REQUIRE(false, std::to_string(static_cast<int>(way)));
}

ExchangeDecision choose_exchange_way(const std::string& wish, const ExchangeFacts& facts) {
  if (!facts.on_devices) {
    if (wish == "nccl") {
      refuse("this metro computes on CPUs, whose memory NCCL does not exchange");
    }
    return {ExchangeWay::host, ""};
  }
  const ExchangeDecision by_mpi = facts.mpi_is_aware
                                      ? ExchangeDecision{ExchangeWay::aware, "this MPI is CUDA-aware"}
                                      : ExchangeDecision{ExchangeWay::staged, "this MPI is not CUDA-aware"};
  if (wish == "mpi") {
    return by_mpi;
  }
  const std::string obstacle = !facts.has_nccl        ? "this metro was built without NCCL"
                               : facts.shares_devices ? "ranks share a GPU (device.share), which NCCL refuses"
                                                      : "";
  if (wish == "nccl" && !obstacle.empty()) {
    refuse(obstacle);
  }
  if (wish == "nccl") {
    return {ExchangeWay::nccl, ""};
  }
  return obstacle.empty() ? ExchangeDecision{ExchangeWay::nccl, "auto: each rank has a GPU of its own"}
                          : ExchangeDecision{by_mpi.way, "auto: " + obstacle + "; " + by_mpi.why};
}

std::unique_ptr<DeviceExchange> make_device_exchange(ExchangeWay way, Transport& transport, double timeout_s) {
  switch (way) {
    case ExchangeWay::nccl:
      return make_nccl_exchange(transport, timeout_s);
    case ExchangeWay::aware:
      return make_aware_exchange(transport);
    case ExchangeWay::host:
    case ExchangeWay::staged:
      break;
  }
  return make_device_exchange(transport);
}

}  // namespace metro
