// decode.exchange = "allgather": all ranks gather all rows together with the ids of their experts, in one collective.
#pragma once

#include "decoder/decode_exchange.hpp"
#include "decoder/phase_clock.hpp"
#include "kernels/buffer.hpp"
#include "model/model_spec.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace metro {

class AllgatherExchange final : public DecodeExchange {
 public:
  // What travels: rows and ids, or rows alone, for a gate that runs on the rows of all ranks.
  enum class Content { rows_and_ids, rows };

  // max_rows: of one rank; max_rows_of_all: of all ranks together. transport and clock must outlive it.
  AllgatherExchange(const ModelSpec& spec, Content content, Transport& transport, std::int64_t max_rows,
                    std::int64_t max_rows_of_all, PhaseClock& clock);

  // With Content::rows the ids stay as they are; rows_of_all() then has the rows [rows of all ranks, H].
  void gather(const RowBatch& batch, const OwnRows& own, std::span<std::int32_t> expert_ids) override;
  const float* bring(const DecodeRound& round, const OwnRows& own, std::vector<ServedAssignment>& served) override;
  const float* rows_of_all() const { return gathered_.data(); }

  std::int64_t num_bytes() const override { return send_.num_bytes() + gathered_.num_bytes(); }
  static std::int64_t planned_bytes(const ModelSpec& spec, Content content, std::int64_t max_rows,
                                    std::int64_t max_rows_of_all);

 private:
  std::int64_t hidden_;
  std::int64_t num_ids_;        // of a row: top_k or 0
  std::int64_t record_floats_;  // a gathered row: H floats, then the ids
  Transport* transport_;
  PhaseClock* clock_;
  Buffer<float> send_, gathered_;         // [rows, record_floats]
  std::vector<std::int64_t> recv_bytes_;  // [num_ranks]
};

}  // namespace metro
