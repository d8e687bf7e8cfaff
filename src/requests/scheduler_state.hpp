// The inside of the scheduler, shared by its source files: scheduler_state.cpp (admission), scheduler_plan.cpp (what a
// step computes), scheduler.cpp (the public functions and what a step changes).
#pragma once

#include "requests/scheduler.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace metro {

struct Running {
  Sequence sequence;
  std::int64_t num_generated = 0;
  std::vector<SampledToken> generated;  // [num_generated], nothing where tokens are not kept
  std::int64_t num_planned_rows = 0;    // in the step that is planned
  bool samples = false;                 // the planned rows end with one that gives a token

  std::int64_t num_waiting_rows() const {
    return std::max<std::int64_t>(0, sequence.prefill_end - sequence.num_computed);
  }
  bool decodes() const { return num_waiting_rows() == 0; }
  std::int64_t num_tokens() const { return std::ssize(sequence.request.prompt) + num_generated; }
};

struct RankState {
  std::list<Running> running;  // in admission order; a list because plans point into it
  RankBlocks blocks;
};

struct Scheduler::Impl {
  SchedulerLimits limits;              // end_tokens sorted
  std::int64_t prefill_threshold = 1;  // waiting rows from which a step is prefill
  std::deque<Request> waiting;
  std::vector<RankState> ranks;
  std::set<std::pair<std::int64_t, std::int64_t>> ranks_by_load;  // (number of running sequences, rank)

  std::int64_t num_running = 0;
  std::int64_t num_waiting_rows = 0;  // prefill rows of running sequences that are not computed
  std::int64_t num_decoding = 0;      // running sequences without such rows
  std::int64_t num_admitted_since_decode = 0;
  bool is_planned = false;
  bool is_full = false;  // the head of the queue found no room, and nothing has been given back since
  std::vector<PromptTokens> prompt_tokens;  // [num_ranks]
  Digest history = 0;                       // of all requests added, all admissions and all tokens

  explicit Impl(const SchedulerLimits& given);
  std::int64_t num_blocks_for(const Request& request) const;
  void remember(std::span<const std::int64_t> event);

  bool keeps_tokens_of(std::int64_t rank) const {
    return limits.keeps_tokens_of == SchedulerLimits::all_ranks || limits.keeps_tokens_of == rank;
  }

  void admit_waiting();
  std::int32_t rope_set_for(std::int64_t num_positions) const {
    return limits.rope_switch_at > 0 && num_positions > limits.rope_switch_at ? 1 : 0;
  }
  BlockWish wish_of(const Request& request) const;
  bool admit(Request& request);
  void start(Request request, std::int64_t rank, HeldBlocks held);

  StepKind choose_kind() const;
  std::vector<SequenceRows> plan_prompt_rows(RankState& rank) const;
  std::vector<SequenceRows> plan_decode_rows(RankState& rank) const;

  void require_matching(const std::vector<std::vector<SampledToken>>& sampled_of_rank) const;
  FinishReason append(Running& running, SampledToken sampled);
  void finish_rows(Running& running);
  void switch_rope_set(Running& running);
  void apply_rank(std::int64_t rank, std::vector<SampledToken>& sampled, std::vector<FinishedSequence>& finished);
  void change_load(std::int64_t rank, std::int64_t change);
};

}  // namespace metro
