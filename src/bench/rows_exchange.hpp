// The exchange of rows that benchmarks measure: what "auto" gives a run whose ranks share no device.
#pragma once

#include "kernels/queue.hpp"
#include "transport/exchange_way.hpp"
#include "transport/nccl_exchange.hpp"

#include <memory>

namespace metro {

// Collective. transport outlives it.
inline std::unique_ptr<DeviceExchange> make_rows_exchange(Transport& transport) {
  constexpr double timeout_s = 120.0;
  const ExchangeFacts facts{!kernels_use_host_memory(), has_nccl(), false};
  return make_device_exchange(choose_exchange_way("auto", facts).way, transport, timeout_s);
}

}  // namespace metro
