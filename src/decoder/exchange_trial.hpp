// Exchanges made-up decode rows of one MoE layer, without computing anything: what decode.exchange = "auto" measures
// when a job starts, and `metro bench exchange` in general.
#pragma once

#include "decoder/allgather_exchange.hpp"
#include "decoder/decode_routing.hpp"
#include "decoder/exchange_mode.hpp"
#include "decoder/ids_exchange.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/routing_settings.hpp"
#include "decoder/row_batch.hpp"
#include "decoder/row_exchange.hpp"
#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "placement/placement.hpp"
#include "routing/replica_map.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <vector>

namespace metro {

class ExchangeTrial {
 public:
  // Of `spec`, hidden size, experts and top_k count; of `placement`, the first layer. max_rows: of one rank. spec and
  // exchange must outlive it. Holds what both exchanges need for that many rows, and no longer than it lives.
  ExchangeTrial(const ModelSpec& spec, const Placement& placement, const RoutingSettings& routing,
                DeviceExchange& exchange, std::int64_t max_rows);

  // The same arguments on all ranks. So many rows of each rank from now on; every row chooses top_k distinct experts,
  // all equally likely, by `seed`.
  void set_rows(std::int64_t rows_per_rank, std::uint64_t seed);

  // Collective. Exchanges the rows once, by allgather or ids_then_alltoall, and checks the ids. Nanoseconds on this
  // rank, from when all ranks were ready.
  std::int64_t run(ExchangeMode mode);

  // Bytes that this rank sent to others in the last run().
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  const ModelSpec* spec_;
  DeviceExchange* exchange_;
  PhaseClock clock_;
  std::vector<ReplicaMap> maps_;  // [1]
  DecodeRouting routing_;
  RowExchange rows_;
  AllgatherExchange allgather_;
  IdsExchange ids_;
  RowBatch batch_;
  Buffer<float> own_rows_;                // [max_rows, H]
  Mirror<std::int32_t> own_ids_;          // [max_rows, top_k]
  Mirror<float> own_weights_;             // likewise; of no account
  std::vector<std::int32_t> ids_of_all_;  // [rows of all ranks, top_k] as they were chosen
  std::vector<std::int32_t> exchanged_;   // likewise, as they came
  std::vector<ServedAssignment> served_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace metro
