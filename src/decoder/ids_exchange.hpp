// decode.exchange = "ids_then_alltoall": all ranks gather the ids of the experts of all rows, and after routing each
// row goes to the ranks that serve it and to no other.
#pragma once

#include "decoder/decode_exchange.hpp"
#include "decoder/phase_clock.hpp"
#include "decoder/row_exchange.hpp"
#include "model/model_spec.hpp"
#include "transport/device_exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace metro {

class IdsExchange final : public DecodeExchange {
 public:
  // max_rows: of one rank, at most those of `rows`. rows, exchange and clock must outlive it.
  IdsExchange(const ModelSpec& spec, RowExchange& rows, DeviceExchange& exchange, std::int64_t max_rows,
              PhaseClock& clock);

  void gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) override;
  const float* bring(const DecodeRound& round, const OwnRows& own, std::vector<ServedAssignment>& served) override;

  // Of the host, where routing wants the ids: they never get into the memory of kernels. Without those of `rows`.
  std::int64_t num_bytes() const override { return std::ssize(send_) + std::ssize(gathered_); }
  static std::int64_t planned_bytes(const ModelSpec& spec, std::int64_t num_ranks, std::int64_t max_rows);

  // Bytes in which an id travels: 2 where that suffices, else 4.
  static std::int64_t id_bytes(std::int64_t num_experts) { return num_experts <= 65536 ? 2 : 4; }

 private:
  std::int64_t hidden_;
  std::int64_t top_k_;
  std::int64_t id_bytes_;
  RowExchange* rows_;
  Transport* transport_;  // of the host
  PhaseClock* clock_;
  std::vector<std::byte> send_, gathered_;  // [rows * top_k] ids of id_bytes
  std::vector<std::int64_t> recv_bytes_;    // [num_ranks]
};

}  // namespace metro
