#include "engine/step_loop.hpp"

#include "engine/step_record.hpp"
#include "kernels/sampling.hpp"

#include <algorithm>

namespace metro {

StepLoop::StepLoop(Decoder& decoder, Scheduler& scheduler, RequestFeed& feed, CompletionWriter* writer,
                   Transport& transport, std::int64_t vocab_size)
    : decoder_(&decoder),
      scheduler_(&scheduler),
      feed_(&feed),
      writer_(writer),
      transport_(&transport),
      vocab_size_(vocab_size),
      logprobs_("logprobs", vocab_size) {}

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
    const std::vector<SampledToken> sampled = sample(plan, logits);
    auto sampled_of_rank = exchange_step_record(plan, sampled, scheduler_->digest(), *transport_);
    statistics.record_step(plan, begin, Clock::now());
    for (const FinishedSequence& finished : scheduler_->apply(std::move(sampled_of_rank))) {
      statistics.record_finished(finished);
      if (writer_ != nullptr) {
        writer_->write(finished.request, feed_->take_origin(finished.request.id), finished.tokens, finished.reason);
      }
    }
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

std::vector<SampledToken> StepLoop::sample(const StepPlan& plan, const float* logits) {
  std::vector<SampledToken> sampled;
  for (const SequenceRows& rows : plan.rows_of_rank[static_cast<std::size_t>(transport_->rank())]) {
    if (!rows.samples) {
      continue;
    }
    SampledToken token;
    argmax(logits, 1, vocab_size_, &token.token);
    const std::int64_t num_logprobs = rows.sequence->request.num_logprobs;
    if (num_logprobs >= 0) {
      log_softmax(logits, 1, vocab_size_, logprobs_.data());
      token.logprob = logprobs_[token.token];
      std::vector<std::int32_t> ids(static_cast<std::size_t>(num_logprobs));
      std::vector<float> values(ids.size());
      top_logprobs(logprobs_.data(), 1, vocab_size_, num_logprobs, ids.data(), values.data());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        token.likeliest.push_back({ids[i], values[i]});
      }
    }
    sampled.push_back(std::move(token));
    logits += vocab_size_;
  }
  return sampled;
}

}  // namespace metro
