#include "report/run_recorder.hpp"

#include "base/error.hpp"

namespace metro {

RunRecorder::RunRecorder(const Placement& placement, RoutingPolicy decode_policy, MetricsWriter* writer)
    : activation_(placement, decode_policy), writer_(writer) {}

void RunRecorder::step_planned(const StepPlan& plan) {
  planned_s_ = seconds_so_far();
  if (plan.kind != StepKind::prefill) {
    return;
  }
  for (const auto& rows_of_rank : plan.rows_of_rank) {
    for (const SequenceRows& rows : rows_of_rank) {
      const auto [times, is_first] = times_.try_emplace(rows.sequence->request.id);
      if (is_first) {
        times->second.first_step_s = planned_s_;
        times->second.num_earlier_tokens = rows.sequence->num_given - std::ssize(rows.sequence->request.prompt);
      }
    }
  }
}

void RunRecorder::step_done(const StepPlan& plan) {
  const double now_s = seconds_so_far();
  step_ = {};
  step_.kind = plan.kind;
  step_.rows = static_cast<std::int32_t>(plan.total_rows());
  step_.begin_s = planned_s_;
  step_.seconds = static_cast<float>(now_s - planned_s_);
  step_.layers = activation_.take();
  for (const auto& rows_of_rank : plan.rows_of_rank) {
    step_.sequences += static_cast<std::int32_t>(rows_of_rank.size());
    for (const SequenceRows& rows : rows_of_rank) {
      if (rows.samples) {
        Times& times = times_.at(rows.sequence->request.id);
        if (std::ssize(rows.sequence->tokens) == rows.sequence->num_given) {
          times.first_token_s = now_s;
        }
        times.last_token_s = now_s;
        ++num_sampled_;
      }
    }
  }
}

void RunRecorder::step_measured(std::span<const RankStep> ranks) {
  step_.phases = phases_of(ranks);
  for (const RankStep& rank : ranks) {
    step_.bytes_sent += rank.bytes_sent;
  }
  statistics_.add(step_);
  if (writer_ != nullptr) {
    writer_->add(step_);
  }
}

void RunRecorder::rebalanced(const RebalanceMetrics& metrics, const Placement& placement) {
  activation_.placement_changed(placement);
  statistics_.add(metrics);
  if (writer_ != nullptr) {
    writer_->add(metrics);
  }
}

void RunRecorder::request_done(const FinishedSequence& finished, const RequestOrigin& origin) {
  const auto found = times_.find(finished.request.id);
  METRO_REQUIRE(found != times_.end(), "unknown request " + std::to_string(finished.request.id));
  RequestMetrics request;
  request.id = finished.request.id;
  request.custom_id = origin.custom_id;
  request.prompt_tokens = static_cast<std::int32_t>(finished.request.prompt.size());
  request.generated_tokens =
      origin.drops_completion
          ? 0
          : static_cast<std::int32_t>(std::ssize(finished.tokens) - found->second.num_earlier_tokens);
  request.finish_reason = finished.reason;
  request.first_step_s = found->second.first_step_s;
  request.first_token_s = found->second.first_token_s;
  request.last_token_s = found->second.last_token_s;
  request.arrival_s = origin.arrival_s;
  times_.erase(found);
  ++num_done_;
  statistics_.add(request);
  if (writer_ != nullptr) {
    writer_->add(request);
  }
}

}  // namespace metro
