// decode.exchange = "allgather": all ranks gather all rows together with the ids of their experts, in one collective.
#pragma once

#include "decoder/decode_exchange.hpp"
#include "decoder/phase_clock.hpp"
#include "kernels/buffer.hpp"
#include "kernels/mirror.hpp"
#include "model/model_spec.hpp"
#include "transport/device_exchange.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class AllgatherExchange final : public DecodeExchange {
 public:
  // What travels: rows and ids, or rows alone, for a gate that runs on the rows of all ranks.
  enum class Content { rows_and_ids, rows };

  // max_rows: of one rank; max_rows_of_all: of all ranks together. exchange and clock must outlive it.
  AllgatherExchange(const ModelSpec& spec, Content content, DeviceExchange& exchange, std::int64_t max_rows,
                    std::int64_t max_rows_of_all, PhaseClock& clock);

  // With Content::rows the ids stay as they are and nothing is waited for; rows_of_all() then has the rows [rows of all
  // ranks, H].
  void gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) override;
  const float* bring(const DecodeRound& round, const OwnRows& own, std::vector<ServedAssignment>& served) override;
  const float* rows_of_all() const { return gathered_.data(); }

  std::int64_t num_bytes() const override { return send_.num_bytes() + gathered_.num_bytes() + ids_.num_bytes(); }
  static std::int64_t planned_bytes(const ModelSpec& spec, Content content, std::int64_t max_rows,
                                    std::int64_t max_rows_of_all);

 private:
  void pack(const OwnRows& own, std::int64_t num_rows);

  std::int64_t hidden_;
  std::int64_t num_ids_;        // of a row: top_k or 0
  std::int64_t record_floats_;  // a gathered row: H floats, then the ids
  DeviceExchange* exchange_;
  PhaseClock* clock_;
  Buffer<float> send_, gathered_;         // [rows, record_floats]
  Mirror<std::int32_t> ids_;              // [rows of all ranks, num_ids], out of gathered_
  std::vector<std::int64_t> recv_bytes_;  // [num_ranks]
};

}  // namespace metro
