// The step loop: schedule, forward pass, sample, exchange the step record, hand out what is finished.
#pragma once

#include "decoder/decoder.hpp"
#include "engine/request_feed.hpp"
#include "report/progress.hpp"
#include "report/run_recorder.hpp"
#include "requests/completion_writer.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <vector>

namespace metro {

class StepLoop {
 public:
  // All arguments must outlive it. writer and progress: rank 0 only, null elsewhere.
  StepLoop(Decoder& decoder, Scheduler& scheduler, RequestFeed& feed, CompletionWriter* writer, Transport& transport,
           std::int64_t vocab_size);

  // Collective. Runs until the input has ended and every request is finished. recorder and progress: rank 0 only, null
  // elsewhere.
  void run(RunRecorder* recorder, Progress* progress);

 private:
  RowBatch make_batch(const StepPlan& plan) const;
  std::vector<SampledToken> sample(const StepPlan& plan, const float* logits);
  void hand_out(const std::vector<FinishedSequence>& finished, RunRecorder* recorder);
  void show(Progress& progress, const RunRecorder& recorder) const;

  Decoder* decoder_;
  Scheduler* scheduler_;
  RequestFeed* feed_;
  CompletionWriter* writer_;
  Transport* transport_;
  std::int64_t vocab_size_;
  std::int64_t step_ = 0;
  Buffer<float> logprobs_;  // [vocab]
};

}  // namespace metro
