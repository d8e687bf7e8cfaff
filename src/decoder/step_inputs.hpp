// What a step tells the kernels about its rows: brought to them once, in one place, before the first layer.
#pragma once

#include "decoder/row_batch.hpp"
#include "kernels/attention.hpp"
#include "kernels/mirror.hpp"

#include <cstdint>
#include <span>

namespace metro {

class StepInputs {
 public:
  // width: floats of a row of the residual.
  StepInputs(const DecoderLimits& limits, std::int64_t width);

  // Enqueues the copies, with padding up to padded_rows rows, at positions -1; waits for kernels that may still read
  // those of the step before. batch.sampled_rows included. Block tables have room for whole contexts, so that arguments
  // of kernels are the same for all steps of one size.
  void bring(const RowBatch& batch, std::int64_t padded_rows);
  // Replaces the sampled rows alone.
  void bring_sampled(std::span<const std::int32_t> rows);

  // For kernels.
  const std::int32_t* token_ids() const { return token_ids_.kernels(); }  // [num_rows]
  const AttentionRows& rows() const { return rows_; }
  const std::int64_t* sampled_offsets() const { return sampled_offsets_.kernels(); }  // [num_sampled()] in floats
  std::int64_t num_sampled() const { return num_sampled_; }

  std::int64_t num_bytes() const;
  static std::int64_t planned_bytes(const DecoderLimits& limits);

 private:
  void set_sampled(std::span<const std::int32_t> rows);

  std::int64_t width_;
  std::int64_t blocks_of_context_;
  Mirror<std::int32_t> token_ids_, positions_, rope_rows_, sequences_;  // [max_rows]
  Mirror<std::int32_t> block_tables_;                                   // [sequences of the step, blocks of a context]
  Mirror<std::int64_t> sampled_offsets_;                                // [max_sampled_rows]
  AttentionRows rows_;
  std::int64_t num_sampled_ = 0;
};

}  // namespace metro
