// Prefill or decode, and which rows.
#include "requests/scheduler_state.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

namespace metro {

std::int64_t SequenceRows::num_scored() const {
  const Request& request = sequence->request;
  if (!request.scores_prompt || num_repeated() > 0) {
    return 0;
  }
  const auto last_position = static_cast<std::int64_t>(request.prompt.size()) - 1;
  return std::clamp<std::int64_t>(last_position - first_position, 0, num_rows);
}

std::int64_t SequenceRows::num_repeated() const {
  const bool has_changed = sequence->prefill_end > sequence->num_given;
  return has_changed ? std::clamp<std::int64_t>(sequence->prefill_end - 1 - first_position, 0, num_rows) : 0;
}

std::int64_t StepPlan::num_rows(std::int64_t rank) const {
  METRO_REQUIRE(rank >= 0 && rank < static_cast<std::int64_t>(rows_of_rank.size()), fmt::format("rank {}", rank));
  std::int64_t total = 0;
  for (const SequenceRows& rows : rows_of_rank[static_cast<std::size_t>(rank)]) {
    total += rows.num_rows;
  }
  return total;
}

std::int64_t StepPlan::total_rows() const {
  std::int64_t total = 0;
  for (std::int64_t rank = 0; rank < static_cast<std::int64_t>(rows_of_rank.size()); ++rank) {
    total += num_rows(rank);
  }
  return total;
}

StepKind Scheduler::Impl::choose_kind() const {
  METRO_REQUIRE(num_waiting_rows > 0 || num_decoding > 0, "nothing to plan");
  if (num_waiting_rows == 0) {
    return StepKind::decode;
  }
  if (num_decoding == 0) {
    return StepKind::prefill;
  }
  const std::int64_t num_places = limits.num_ranks * limits.max_sequences_per_rank;
  if (num_admitted_since_decode > num_places) {
    return StepKind::decode;
  }
  const bool enough_rows = num_waiting_rows >= prefill_threshold;
  const bool few_decode = 2 * num_decoding < num_places;
  return enough_rows || few_decode ? StepKind::prefill : StepKind::decode;
}

// A sequence may read blocks that others fill, in this step or later: these came before it, so whatever of theirs is
// not computed is planned before its first row. And in a step all rows are in the cache before one attends.
std::vector<SequenceRows> Scheduler::Impl::plan_prompt_rows(RankState& rank) const {
  std::vector<SequenceRows> plan;
  std::int64_t room = limits.prefill_chunk;
  for (Running& running : rank.running) {
    const std::int64_t num_rows = std::min(room, running.num_waiting_rows());
    running.num_planned_rows = num_rows;
    running.samples = num_rows > 0 && num_rows == running.num_waiting_rows();
    if (num_rows > 0) {
      plan.push_back({&running.sequence, running.sequence.num_computed, num_rows, running.samples});
      room -= num_rows;
    }
  }
  return plan;
}

std::vector<SequenceRows> Scheduler::Impl::plan_decode_rows(RankState& rank) const {
  std::vector<SequenceRows> plan;
  for (Running& running : rank.running) {
    running.num_planned_rows = running.decodes() ? 1 : 0;
    running.samples = running.decodes();
    if (running.samples) {
      plan.push_back({&running.sequence, running.sequence.num_computed, 1, true});
    }
  }
  return plan;
}

}  // namespace metro
