// The replicated scheduler: every rank runs the same deterministic code on the same state, which changes only by the
// requests that rank 0 broadcasts (add) and the tokens that all ranks all-gather after each step (apply).
// Integers and ordered containers only. Continuous batching: a new sequence goes to the rank with the fewest (tie: the
// lowest); KV blocks for prompt + max_tokens are reserved on admission, so an admitted sequence can always finish.
// Sequences of a rank whose prompts begin alike use the same blocks for that, as far as it fills blocks.
// A request that an earlier part of the run has begun comes with its tokens: they are computed like a prompt.
#pragma once

#include "base/digest.hpp"
#include "requests/rank_blocks.hpp"
#include "requests/request.hpp"
#include "requests/sampled_token.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace metro {

struct SchedulerLimits {
  std::int64_t num_ranks = 1;
  std::int64_t max_sequences_per_rank = 1;
  std::int64_t prefill_chunk = 1;       // most prompt tokens per rank and step
  double prefill_min = 0.5;             // 0..1: waiting rows that make a step prefill, as a share of num_ranks * chunk
  std::int64_t kv_blocks_per_rank = 1;  // at least enough for one sequence of max_context
  std::int64_t block_tokens = 16;
  bool share_prefixes = true;  // prompts that begin alike share blocks
  // How many blocks of a rank are known for the tokens of a prompt that they hold, at most; 0 without share_prefixes.
  std::int64_t most_prefix_blocks() const;
  // Sequences of more positions than this are computed with set 1 of the RoPE factors, for all their positions; 0:
  // there is one set.
  std::int64_t rope_switch_at = 0;
  std::vector<std::int32_t> end_tokens;
  // The rank whose sequences keep their tokens. A rank needs those of its own only, and with many ranks all tokens of
  // all of them would take much memory. Decisions do not depend on it.
  static constexpr std::int64_t all_ranks = -1;
  std::int64_t keeps_tokens_of = all_ranks;
};

enum class StepKind : std::int32_t { prefill = 0, decode = 1 };

// A sequence that lives on a rank. Sequence state is the same on all ranks (KV blocks are numbers of its own rank).
struct Sequence {
  Request request;
  std::int64_t rank = 0;
  std::int64_t num_given = 0;        // tokens that it began with: prompt, then those of an earlier part of the run
  std::vector<std::int32_t> tokens;  // these, then generated ones; nothing where tokens are not kept
  // Its first positions, which prefill steps compute: num_given, or when the set of factors has changed all there were.
  std::int64_t prefill_end = 0;
  std::int64_t num_computed = 0;  // positions whose K and V are in the cache, or that other sequences compute before it
  HeldBlocks kv;                  // blocks of its rank
  std::int32_t rope_set = 0;      // set of RoPE factors of all its positions
};

// Rows of one sequence in one step: positions first_position .. first_position + num_rows - 1.
struct SequenceRows {
  const Sequence* sequence = nullptr;
  std::int64_t first_position = 0;
  std::int64_t num_rows = 0;
  bool samples = false;  // the last row's logits give the next token

  // How many of the rows, from the first on, have a token of the prompt behind them whose log-probability is wanted.
  std::int64_t num_scored() const;
  // How many of the rows, from the first on, the sequence has computed before, with the other set of RoPE factors.
  std::int64_t num_repeated() const;
};

// Rows of prompts that a rank has computed, and positions of prompts that its sequences took from other ones.
struct PromptTokens {
  std::int64_t num_computed = 0;
  std::int64_t num_shared = 0;

  bool operator==(const PromptTokens&) const = default;
};

struct StepPlan {
  StepKind kind = StepKind::decode;
  std::vector<std::vector<SequenceRows>> rows_of_rank;  // [num_ranks]; a rank may have none
  std::int64_t num_rows(std::int64_t rank) const;
  std::int64_t total_rows() const;
};

// A request that is not finished, with all tokens that were generated so far. Valid until the scheduler changes.
struct UnfinishedSequence {
  const Request* request = nullptr;
  const std::vector<SampledToken>* tokens = nullptr;
};

// A finished completion. `tokens` are the generated ones; nothing where tokens are not kept.
struct FinishedSequence {
  Request request;
  std::vector<SampledToken> tokens;
  FinishReason reason = FinishReason::none;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);
  ~Scheduler();
  const SchedulerLimits& limits() const;

  // Appends to the waiting queue; requests are admitted strictly in this order.
  void add(std::vector<Request> requests);
  std::int64_t num_waiting() const;
  std::int64_t num_running() const;
  bool idle() const { return num_waiting() == 0 && num_running() == 0; }

  // Admits what fits, then plans one step. Not to be called when idle(). The plan's pointers stay valid until apply().
  StepPlan plan_step();

  // Ends the planned step. sampled_of_rank [num_ranks]: for each rank the tokens of its rows with `samples`, in plan
  // order. After min_tokens, sequences end at an end token (unless ignore_eos), at a stop token or at a stop string
  // that their rank has found; and always after max_tokens. They are returned in rank order and their KV blocks are
  // free again.
  std::vector<FinishedSequence> apply(std::vector<std::vector<SampledToken>> sampled_of_rank);

  // All requests that run or wait. For a scheduler that keeps the tokens of all ranks.
  std::vector<UnfinishedSequence> unfinished() const;

  const std::vector<PromptTokens>& prompt_tokens() const;  // [num_ranks], so far

  // Memory held for the requests that run or wait, and for the places of all ranks.
  std::int64_t num_bytes() const;

  // Digest of the scheduling state; equal on all ranks or something is broken.
  Digest digest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace metro
