// The step loop: schedule, forward pass, sample, exchange the step record, hand out what is finished.
#pragma once

#include "decoder/decoder.hpp"
#include "engine/rebalancer.hpp"
#include "engine/request_feed.hpp"
#include "engine/state_saver.hpp"
#include "engine/step_record.hpp"
#include "engine/trace_recording.hpp"
#include "report/progress.hpp"
#include "report/run_recorder.hpp"
#include "requests/completion_writer.hpp"
#include "requests/scheduler.hpp"
#include "sampling/sampler.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace metro {

class StepLoop {
 public:
  // All arguments must outlive it. writer: rank 0 only, null elsewhere. rebalancer: null for a placement that stays.
  StepLoop(Decoder& decoder, Sampler& sampler, Scheduler& scheduler, RequestFeed& feed, CompletionWriter* writer,
           Rebalancer* rebalancer, Transport& transport, const DecoderLimits& limits);

  // Collective. Runs until the input has ended and every request is finished, then returns true; or until a signal asks
  // any rank to stop, then false, on all ranks after the same step, and the state is saved. recorder, progress and
  // saver: rank 0 only, null elsewhere. recording: on all ranks or on none.
  bool run(RunRecorder* recorder, Progress* progress, StateSaver* saver, TraceRecording* recording = nullptr);

 private:
  void rebalance(RunRecorder* recorder);
  StepObserver* watchers(RunRecorder* recorder, TraceRecording* recording) const;
  RankRecord sample(const StepPlan& plan, const float* logits);
  std::vector<SampledToken> score_prompts(const std::vector<SequenceRows>& own);
  void hand_out(std::map<std::int64_t, std::vector<SampledToken>>& prompt_scores,
                std::vector<FinishedSequence> finished, RunRecorder* recorder);
  void warn_of_lost_graphs();
  bool ends(bool stops, StateSaver* saver) const;
  void follow_up(const RunRecorder& recorder, Progress* progress, StateSaver* saver) const;
  void show(Progress& progress, const RunRecorder& recorder) const;

  Decoder* decoder_;
  Sampler* sampler_;
  Scheduler* scheduler_;
  RequestFeed* feed_;
  CompletionWriter* writer_;
  Rebalancer* rebalancer_;
  Transport* transport_;
  std::int64_t max_sampled_rows_;
  std::int64_t rope_positions_;
  std::int64_t step_ = 0;
  bool lost_graphs_ = false;
  Digest placement_digest_;
};

}  // namespace metro
