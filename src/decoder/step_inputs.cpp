#include "decoder/step_inputs.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

// A rank has as many sequences as rows in a decode step, or fewer.
std::int64_t most_table_entries(const DecoderLimits& limits) {
  return limits.max_decode_rows * ceil_div(limits.max_context, limits.block_tokens);
}

}  // namespace

StepInputs::StepInputs(const DecoderLimits& limits, std::int64_t width)
    : width_(width),
      blocks_of_context_(ceil_div(limits.max_context, limits.block_tokens)),
      token_ids_("token ids", limits.max_rows),
      positions_("positions", limits.max_rows),
      rope_rows_("places in the rope table", limits.max_rows),
      sequences_("sequences of rows", limits.max_rows),
      block_tables_("KV block tables", most_table_entries(limits)),
      sampled_offsets_("places of sampled rows", limits.max_sampled_rows) {}

std::int64_t StepInputs::num_bytes() const {
  return token_ids_.num_bytes() + positions_.num_bytes() + rope_rows_.num_bytes() + sequences_.num_bytes() +
         block_tables_.num_bytes() + sampled_offsets_.num_bytes();
}

std::int64_t StepInputs::planned_bytes(const DecoderLimits& limits) {
  return (4 * limits.max_rows + most_table_entries(limits)) * static_cast<std::int64_t>(sizeof(std::int32_t)) +
         limits.max_sampled_rows * static_cast<std::int64_t>(sizeof(std::int64_t));
}

void StepInputs::bring(const RowBatch& batch, std::int64_t padded_rows) {
  constexpr std::int32_t nobody = -1;
  const std::int64_t num_sequences = batch.max_blocks == 0 ? 0 : std::ssize(batch.block_tables) / batch.max_blocks;
  METRO_REQUIRE(batch.num_rows() <= padded_rows && padded_rows <= token_ids_.size(),
                fmt::format("{} rows, padded to {}", batch.num_rows(), padded_rows));
  METRO_REQUIRE(batch.max_blocks <= blocks_of_context_ && num_sequences * blocks_of_context_ <= block_tables_.size(),
                fmt::format("{} sequences of up to {} blocks", num_sequences, batch.max_blocks));
  wait_for_kernels();
  const auto bring_numbers = [padded_rows](const Mirror<std::int32_t>& to, const std::vector<std::int32_t>& from,
                                           std::int32_t padding) {
    std::fill(std::copy(from.begin(), from.end(), to.host()), to.host() + padded_rows, padding);
    to.to_kernels(padded_rows);
  };
  bring_numbers(token_ids_, batch.token_ids, nobody);
  bring_numbers(positions_, batch.positions, nobody);
  bring_numbers(sequences_, batch.sequences, 0);
  // Always: a recorded step keeps the addresses, also one in which this rank had no rows.
  bring_numbers(rope_rows_, batch.rope_rows.empty() ? batch.positions : batch.rope_rows, nobody);
  for (std::int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    std::copy_n(batch.block_tables.data() + sequence * batch.max_blocks, batch.max_blocks,
                block_tables_.host() + sequence * blocks_of_context_);
  }
  block_tables_.to_kernels(num_sequences * blocks_of_context_);
  rows_ = {padded_rows,        positions_.kernels(), sequences_.kernels(), block_tables_.kernels(),
           blocks_of_context_, rope_rows_.kernels()};
  set_sampled(batch.sampled_rows);
}

void StepInputs::bring_sampled(std::span<const std::int32_t> rows) {
  wait_for_kernels();
  set_sampled(rows);
}

void StepInputs::set_sampled(std::span<const std::int32_t> rows) {
  num_sampled_ = std::ssize(rows);
  METRO_REQUIRE(num_sampled_ <= sampled_offsets_.size(), "more sampled rows than the buffers hold");
  for (std::int64_t i = 0; i < num_sampled_; ++i) {
    sampled_offsets_[i] = rows[at(i)] * width_;
  }
  sampled_offsets_.to_kernels(num_sampled_);
}

}  // namespace metro
