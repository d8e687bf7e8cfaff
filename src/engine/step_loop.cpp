#include "engine/step_loop.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace metro {

StepLoop::StepLoop(Decoder& decoder, Sampler& sampler, Scheduler& scheduler, RequestFeed& feed,
                   CompletionWriter* writer, Transport& transport, const DecoderLimits& limits)
    : decoder_(&decoder),
      sampler_(&sampler),
      scheduler_(&scheduler),
      feed_(&feed),
      writer_(writer),
      transport_(&transport),
      max_sampled_rows_(limits.max_sampled_rows) {}

void StepLoop::run(RunStatistics& statistics, ActivationStatistics* activation, Progress* progress) {
  statistics.start();
  while (true) {
    feed_->refill(*scheduler_);
    if (scheduler_->idle()) {
      break;  // refill() went on until something waits or the input has ended
    }
    const Clock::time_point begin = Clock::now();
    const StepPlan plan = scheduler_->plan_step();
    const float* logits = decoder_->forward(make_batch(plan), activation);
    StepRecord record = exchange_step_record(plan, sample(plan, logits), scheduler_->digest(), *transport_);
    statistics.record_step(plan, begin, Clock::now());
    hand_out(std::move(record), statistics);
    if (progress != nullptr) {
      progress->update(statistics, scheduler_->num_running(), feed_->num_accepted(), feed_->exhausted());
    }
    ++step_;
  }
  statistics.finish();
  if (progress != nullptr) {
    progress->finish();
  }
}

RowBatch StepLoop::make_batch(const StepPlan& plan) const {
  RowBatch batch;
  batch.decode = plan.kind == StepKind::decode;
  batch.step = step_;
  for (std::int64_t rank = 0; rank < transport_->size(); ++rank) {
    batch.rows_of_rank.push_back(plan.num_rows(rank));
  }
  const auto& own = plan.rows_of_rank[static_cast<std::size_t>(transport_->rank())];
  for (const SequenceRows& rows : own) {
    batch.max_blocks = std::max(batch.max_blocks, static_cast<std::int64_t>(rows.sequence->kv_blocks.size()));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    const SequenceRows& rows = own[i];
    const auto& blocks = rows.sequence->kv_blocks;
    batch.block_tables.insert(batch.block_tables.end(), blocks.begin(), blocks.end());
    batch.block_tables.resize((i + 1) * static_cast<std::size_t>(batch.max_blocks), 0);
    for (std::int64_t position = rows.first_position; position < rows.first_position + rows.num_rows; ++position) {
      batch.token_ids.push_back(rows.sequence->tokens[static_cast<std::size_t>(position)]);
      batch.positions.push_back(static_cast<std::int32_t>(position));
      batch.sequences.push_back(static_cast<std::int32_t>(i));
    }
    if (rows.samples) {
      batch.sampled_rows.push_back(static_cast<std::int32_t>(batch.token_ids.size()) - 1);
    }
  }
  return batch;
}

RankRecord StepLoop::sample(const StepPlan& plan, const float* logits) {
  const auto& own = plan.rows_of_rank[static_cast<std::size_t>(transport_->rank())];
  RankRecord record;
  record.sampled = sampler_->sample(own, logits);
  record.prompt_scores = score_prompts(own);  // in place of these logits
  return record;
}

// Log-probabilities of the prompt's tokens, as many rows at a time as the decoder gives logits of.
std::vector<SampledToken> StepLoop::score_prompts(const std::vector<SequenceRows>& own) {
  std::vector<SampledToken> scores;
  std::int64_t first_row = 0;  // of the sequence in the batch
  for (const SequenceRows& rows : own) {
    const Request& request = rows.sequence->request;
    for (std::int64_t begin = 0; begin < rows.num_scored(); begin += max_sampled_rows_) {
      std::vector<std::int32_t> slab(static_cast<std::size_t>(std::min(max_sampled_rows_, rows.num_scored() - begin)));
      std::iota(slab.begin(), slab.end(), static_cast<std::int32_t>(first_row + begin));
      const float* logits = decoder_->logits_of(slab);
      for (std::size_t i = 0; i < slab.size(); ++i) {
        const std::size_t position = static_cast<std::size_t>(rows.first_position + begin) + i;
        scores.push_back(sampler_->scored(logits, request.prompt[position + 1], request.num_logprobs));
        logits += sampler_->vocab_size();
      }
    }
    first_row += rows.num_rows;
  }
  return scores;
}

// The end of a step: what is finished goes to the writer.
void StepLoop::hand_out(StepRecord record, RunStatistics& statistics) {
  if (writer_ != nullptr) {
    for (auto& [request_id, scores] : record.prompt_scores) {
      feed_->add_prompt_scores(request_id, std::move(scores));
    }
  }
  for (FinishedSequence& finished : scheduler_->apply(std::move(record.sampled_of_rank))) {
    statistics.record_finished(finished);
    sampler_->forget(finished.request.id);
    if (writer_ != nullptr) {
      if (const auto line = feed_->finish(std::move(finished))) {
        writer_->write(*line);
      }
    }
  }
}

}  // namespace metro
