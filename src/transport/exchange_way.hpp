// By which way memory of kernels gets to other ranks: from the deck and from what there is, the same on all ranks.
#pragma once

#include "transport/device_exchange.hpp"

#include <memory>
#include <string>

namespace metro {

enum class ExchangeWay {
  host,    // kernels use the memory of the host: the transport itself
  staged,  // through the host's memory
  aware,   // by a CUDA-aware MPI
  nccl     // from device to device
};

// "host", "mpi through the host", "mpi from device memory", "nccl".
const char* name_of(ExchangeWay way);

struct ExchangeFacts {
  bool on_devices = false;      // kernels have memory of their own
  bool has_nccl = false;        // this build has it
  bool shares_devices = false;  // ranks of a node share one, which NCCL refuses
  bool mpi_is_aware = false;    // that of every rank (mpi_device_memory.hpp)
};

struct ExchangeDecision {
  ExchangeWay way = ExchangeWay::host;
  std::string why;  // for the start-up table; empty where there was nothing to decide
};

// wish: exchange.transport of the deck. Throws Error(usage) where it says nccl and that cannot be.
ExchangeDecision choose_exchange_way(const std::string& wish, const ExchangeFacts& facts);

// Collective. The exchange of this job. timeout_s > 0: of a wait for other ranks. NCCL's errors: nccl_exchange.hpp.
std::unique_ptr<DeviceExchange> make_device_exchange(ExchangeWay way, Transport& transport, double timeout_s);

}  // namespace metro
