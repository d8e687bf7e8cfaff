#include "engine/step_loop.hpp"

#include "base/error.hpp"
#include "engine/step_record.hpp"
#include "kernels/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

void StepLoop::run(RunRecorder* recorder, Progress* progress) {
  PhaseClock& clock = decoder_->clock();
  RankStep measured;  // in the step before
  std::vector<RankStep> measured_of_rank(static_cast<std::size_t>(transport_->size()));
  std::int64_t bytes_before = transport_->bytes_sent();
  clock.start();
  const Clock::time_point start = recorder != nullptr ? recorder->start_time() : Clock::now();
  while (true) {
    feed_->refill(*scheduler_, start);
    if (scheduler_->idle()) {
      break;  // refill() went on until something waits or the input has ended
    }
    clock.lap(Lap::requests);
    const StepPlan plan = scheduler_->plan_step();
    if (recorder != nullptr) {
      recorder->step_planned(plan);
    }
    const RowBatch batch = make_batch(plan);
    clock.lap(Lap::scheduling);
    const float* logits = decoder_->forward(batch, recorder != nullptr ? &recorder->observer() : nullptr);
    const std::vector<SampledToken> sampled = sample(plan, logits);
    clock.lap(Lap::sampling);
    auto sampled_of_rank =
        exchange_step_record(plan, sampled, scheduler_->digest(), measured, measured_of_rank, *transport_);
    clock.lap(Lap::record);
    if (recorder != nullptr) {
      if (step_ > 0) {
        recorder->step_measured(measured_of_rank);
      }
      recorder->step_done(plan);
    }
    const std::vector<FinishedSequence> finished = scheduler_->apply(std::move(sampled_of_rank));
    clock.lap(Lap::scheduling);
    hand_out(finished, recorder);
    if (progress != nullptr) {
      show(*progress, *recorder);
    }
    clock.lap(Lap::requests);
    measured.seconds = clock.take();
    measured.bytes_sent = transport_->bytes_sent() - bytes_before;
    bytes_before = transport_->bytes_sent();
    ++step_;
  }
  exchange_measured(measured, measured_of_rank, *transport_);
  if (recorder != nullptr && step_ > 0) {
    recorder->step_measured(measured_of_rank);
  }
  if (progress != nullptr) {
    progress->finish();
  }
}

void StepLoop::hand_out(const std::vector<FinishedSequence>& finished, RunRecorder* recorder) {
  if (recorder == nullptr) {
    return;
  }
  for (const FinishedSequence& one : finished) {
    const RequestOrigin origin = feed_->take_origin(one.request.id);
    writer_->write(one.request, origin, one.tokens, one.reason);
    recorder->request_done(one, origin.custom_id, origin.arrival_s);
  }
  writer_->flush_if_due(recorder->seconds_so_far());
}

void StepLoop::show(Progress& progress, const RunRecorder& recorder) const {
  ProgressState state;
  state.elapsed_s = recorder.seconds_so_far();
  state.num_done = recorder.num_done();
  state.num_requests = feed_->num_accepted();
  state.input_ended = feed_->exhausted();
  state.num_running = scheduler_->num_running();
  state.num_generated = recorder.num_sampled();
  progress.update(state);
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
    if (!std::isfinite(logits[token.token])) {
      throw Error(ExitCode::internal, fmt::format("request {}: the logits after position {} are not finite",
                                                  rows.sequence->request.id, rows.first_position + rows.num_rows - 1));
    }
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
