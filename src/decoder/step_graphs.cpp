#include "decoder/step_graphs.hpp"

#include "base/error.hpp"
#include "kernels/queue.hpp"
#include "transport/agree.hpp"

#include <utility>

namespace metro {

void StepGraphs::begin_step(std::int64_t padded_rows) {
  step_ = is_on_ ? &steps_[padded_rows] : nullptr;
  num_done_ = 0;
}

// Null: this step's kernels are enqueued one by one.
KernelGraph* StepGraphs::next_segment() {
  if (step_ == nullptr || !step_->is_warm) {
    return nullptr;
  }
  if (num_done_ == step_->segments.size()) {
    METRO_REQUIRE(!step_->is_recorded, "a step has more segments than when it was recorded");
    step_->segments.emplace_back();
  }
  return &step_->segments[num_done_++];
}

// False if the device refuses, once or ever since. The first launch belongs to it: that takes memory of the device.
bool StepGraphs::record_and_launch(KernelGraph& graph, const std::function<void()>& work) {
  if (!why_not_.empty()) {
    return false;
  }
  try {
    graph.record(work);
    graph.launch();
    return true;
  } catch (const Error& refusal) {
    why_not_ = refusal.what();
    return false;
  }
}

void StepGraphs::end_step() {
  Step* const step = std::exchange(step_, nullptr);
  if (step == nullptr || step->is_recorded) {
    return;
  }
  if (!step->is_warm) {
    step->is_warm = true;
    return;
  }
  try {
    agree(*transport_, [&] {
      if (!why_not_.empty()) {
        throw Error(ExitCode::machine, why_not_);
      }
    });
    step->is_recorded = true;
  } catch (const AgreedError& refusal) {
    why_not_ = refusal.what();  // with the rank
    is_on_ = false;
    wait_for_kernels();  // graphs of this step may still be in the queue
    steps_.clear();
  }
}

}  // namespace metro
