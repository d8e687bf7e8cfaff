#include "engine/step_loop.hpp"

#include "base/error.hpp"
#include "base/stop_signals.hpp"
#include "engine/step_batch.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace metro {

StepLoop::StepLoop(Decoder& decoder, Sampler& sampler, Scheduler& scheduler, RequestFeed& feed,
                   CompletionWriter* writer, Rebalancer* rebalancer, Transport& transport, const DecoderLimits& limits)
    : decoder_(&decoder),
      sampler_(&sampler),
      scheduler_(&scheduler),
      feed_(&feed),
      writer_(writer),
      rebalancer_(rebalancer),
      transport_(&transport),
      max_sampled_rows_(limits.max_sampled_rows),
      rope_positions_(scheduler.limits().rope_switch_at > 0 ? limits.max_context : 0),
      placement_digest_(decoder.placement().digest()) {}

bool StepLoop::run(RunRecorder* recorder, Progress* progress, StateSaver* saver, TraceRecording* recording) {
  StepObserver* const observer = watchers(recorder, recording);
  PhaseClock& clock = decoder_->clock();
  RankStep measured;  // in the step before
  std::int64_t bytes_before = transport_->bytes_sent();
  clock.start();
  const Clock::time_point start = recorder != nullptr ? recorder->start_time() : Clock::now();
  bool stops = false;
  while (true) {
    stops = stops || feed_->refill(*scheduler_, start);
    if (stops || scheduler_->idle()) {
      break;  // refill() went on until something waits or the input has ended
    }
    clock.lap(Lap::requests);
    if (rebalancer_ != nullptr && rebalancer_->is_due(step_)) {
      const std::int64_t sent_before = transport_->bytes_sent();
      rebalance(recorder);
      // It is reported for itself: not in the times and bytes of a step.
      bytes_before += transport_->bytes_sent() - sent_before;
      clock.start();
    }
    const StepPlan plan = scheduler_->plan_step();
    if (recorder != nullptr) {
      recorder->step_planned(plan);
    }
    const RowBatch batch = batch_of(plan, transport_->rank(), step_, rope_positions_);
    clock.lap(Lap::scheduling);
    transport_->set_phase("attention and dense layers");
    const float* logits = decoder_->forward(batch, observer);
    warn_of_lost_graphs();
    if (recording != nullptr) {
      recording->record(plan, step_);
    }
    transport_->set_phase("sampling");
    RankRecord own = sample(plan, logits);
    own.measured = measured;
    own.stop = stop_is_requested();
    clock.lap(Lap::sampling);
    StepRecord record = exchange_step_record(plan, own, {scheduler_->digest(), placement_digest_}, *transport_);
    clock.lap(Lap::record);
    if (recorder != nullptr) {
      if (step_ > 0) {
        recorder->step_measured(record.measured_of_rank);
      }
      recorder->step_done(plan);
    }
    std::vector<FinishedSequence> finished = scheduler_->apply(std::move(record.sampled_of_rank));
    clock.lap(Lap::scheduling);
    transport_->set_phase("output");
    hand_out(record.prompt_scores, std::move(finished), recorder);
    if (recorder != nullptr) {
      follow_up(*recorder, progress, saver);
    }
    stops = record.stop;
    clock.lap(Lap::requests);
    measured.seconds = clock.take();
    measured.bytes_sent = transport_->bytes_sent() - bytes_before;
    bytes_before = transport_->bytes_sent();
    ++step_;
  }
  const std::vector<RankStep> measured_of_rank = exchange_measured(measured, *transport_);
  if (recorder != nullptr && step_ > 0) {
    recorder->step_measured(measured_of_rank);
  }
  if (progress != nullptr) {
    progress->finish();
  }
  return ends(stops, saver);
}

// Once, if a device no longer records graphs: it is slower, and right.
void StepLoop::warn_of_lost_graphs() {
  if (transport_->rank() == 0 && !lost_graphs_ && !decoder_->why_no_graphs().empty()) {
    std::fprintf(stderr, "metro: warning: decode goes on without graphs of kernels: %s\n",
                 one_line(decoder_->why_no_graphs()).c_str());
  }
  lost_graphs_ = !decoder_->why_no_graphs().empty();
}

// Whether everything is finished; what is not is saved.
bool StepLoop::ends(bool stops, StateSaver* saver) const {
  if (!stops || (scheduler_->idle() && feed_->exhausted())) {
    return true;
  }
  answer_stop_signals();
  if (saver != nullptr) {
    saver->save();
  }
  return false;
}

void StepLoop::rebalance(RunRecorder* recorder) {
  const double begin_s = recorder != nullptr ? recorder->seconds_so_far() : 0.0;
  RebalanceMetrics metrics = rebalancer_->run(step_);
  metrics.begin_s = begin_s;
  placement_digest_ = decoder_->placement().digest();
  if (recorder != nullptr) {
    recorder->rebalanced(metrics, decoder_->placement());
  }
}

// Who is shown the forward passes, each passing them on to the next; null: nobody.
StepObserver* StepLoop::watchers(RunRecorder* recorder, TraceRecording* recording) const {
  StepObserver* first = recorder != nullptr ? &recorder->observer() : nullptr;
  if (rebalancer_ != nullptr) {
    rebalancer_->loads().forward_to(first);
    first = &rebalancer_->loads();
  }
  if (recording != nullptr) {
    recording->forward_to(first);
    first = recording;
  }
  return first;
}

// The end of a step: what is finished is recorded and, when its line is complete, written.
void StepLoop::hand_out(std::map<std::int64_t, std::vector<SampledToken>>& prompt_scores,
                        std::vector<FinishedSequence> finished, RunRecorder* recorder) {
  for (const FinishedSequence& one : finished) {
    sampler_->forget(one.request.id);
  }
  if (recorder == nullptr) {
    return;
  }
  for (auto& [request_id, scores] : prompt_scores) {
    feed_->add_prompt_scores(request_id, std::move(scores));
  }
  for (FinishedSequence& one : finished) {
    recorder->request_done(one, feed_->origin_of(one.request.id));
    if (const auto line = feed_->finish(std::move(one))) {
      writer_->write(*line);
    }
  }
  writer_->flush_if_due(recorder->seconds_so_far());
}

// What follows a step by the clock: the line of progress, the saved state.
void StepLoop::follow_up(const RunRecorder& recorder, Progress* progress, StateSaver* saver) const {
  if (progress != nullptr) {
    show(*progress, recorder);
  }
  if (saver != nullptr) {
    saver->save_if_due(recorder.seconds_so_far());
  }
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

}  // namespace metro
