// The exchange of rows that benchmarks measure: what "auto" gives a run whose ranks share no device.
#pragma once

#include "kernels/queue.hpp"
#include "transport/exchange_way.hpp"
#include "transport/mpi_device_memory.hpp"
#include "transport/nccl_exchange.hpp"

#include <memory>

namespace metro {

// Collective. transport outlives it.
inline std::unique_ptr<DeviceExchange> make_rows_exchange(Transport& transport) {
  constexpr double timeout_s = 120.0;
  const bool on_devices = !kernels_use_host_memory();
  const ExchangeFacts facts{.on_devices = on_devices,
                            .has_nccl = has_nccl(),
                            .shares_devices = false,
                            .mpi_is_aware = on_devices && mpi_takes_device_memory(transport)};
  return make_device_exchange(choose_exchange_way("auto", facts).way, transport, timeout_s);
}

}  // namespace metro
