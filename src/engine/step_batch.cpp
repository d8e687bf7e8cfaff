#include "engine/step_batch.hpp"

#include <algorithm>

namespace metro {

RowBatch batch_of(const StepPlan& plan, std::int64_t rank, std::int64_t step, std::int64_t rope_positions) {
  RowBatch batch;
  batch.decode = plan.kind == StepKind::decode;
  batch.step = step;
  batch.rows_of_rank.reserve(plan.rows_of_rank.size());
  for (std::int64_t other = 0; other < std::ssize(plan.rows_of_rank); ++other) {
    batch.rows_of_rank.push_back(plan.num_rows(other));
  }
  const auto& own = plan.rows_of_rank[static_cast<std::size_t>(rank)];
  for (const SequenceRows& rows : own) {
    batch.max_blocks = std::max(batch.max_blocks, static_cast<std::int64_t>(rows.sequence->kv.blocks.size()));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    const SequenceRows& rows = own[i];
    const auto& blocks = rows.sequence->kv.blocks;
    batch.block_tables.insert(batch.block_tables.end(), blocks.begin(), blocks.end());
    batch.block_tables.resize((i + 1) * static_cast<std::size_t>(batch.max_blocks), 0);
    const std::int64_t prompt_length = std::ssize(rows.sequence->request.prompt);
    for (std::int64_t position = rows.first_position; position < rows.first_position + rows.num_rows; ++position) {
      batch.token_ids.push_back(rows.sequence->tokens[static_cast<std::size_t>(position)]);
      batch.positions.push_back(static_cast<std::int32_t>(position));
      batch.sequences.push_back(static_cast<std::int32_t>(i));
      batch.is_generated.push_back(position >= prompt_length ? 1 : 0);
      if (rope_positions > 0) {
        batch.rope_rows.push_back(static_cast<std::int32_t>(position + rows.sequence->rope_set * rope_positions));
      }
    }
    if (rows.samples) {
      batch.sampled_rows.push_back(static_cast<std::int32_t>(batch.token_ids.size()) - 1);
    }
  }
  return batch;
}

}  // namespace metro
