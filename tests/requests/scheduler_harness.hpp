// A stand-in for the engine: runs a scheduler with a made-up model and checks after every plan what must always hold.
#pragma once

#include "requests/scheduler.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace metro::test {

inline Request make_request(std::int64_t id, std::int64_t prompt_length, std::int32_t max_tokens) {
  Request request;
  request.id = id;
  for (std::int64_t i = 0; i < prompt_length; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>((id * 31 + i) % 1000));
  }
  request.max_tokens = max_tokens;
  return request;
}

// Four sequences per rank, chunks of 8 rows, 100 KV blocks of 4 tokens; tokens 98 and 99 end.
inline SchedulerLimits roomy(std::int64_t num_ranks) {
  SchedulerLimits limits;
  limits.num_ranks = num_ranks;
  limits.max_sequences_per_rank = 4;
  limits.prefill_chunk = 8;
  limits.prefill_min = 0.5;
  limits.kv_blocks_per_rank = 100;
  limits.block_tokens = 4;
  limits.end_tokens = {99, 98};
  return limits;
}

// The token the made-up model generates after `position`: a function of request and position alone, 0..49.
inline std::int32_t model_token(std::int64_t id, std::int64_t position) {
  auto mixed =
      static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(position) * 0xBF58476D1CE4E5B9U;
  mixed ^= mixed >> 29U;
  mixed *= 0x94D049BB133111EBU;
  return static_cast<std::int32_t>((mixed >> 33U) % 50U);
}

inline std::vector<std::vector<SampledToken>> sample(const StepPlan& plan) {
  std::vector<std::vector<SampledToken>> sampled(plan.rows_of_rank.size());
  for (std::size_t rank = 0; rank < plan.rows_of_rank.size(); ++rank) {
    for (const SequenceRows& rows : plan.rows_of_rank[rank]) {
      if (rows.samples) {
        SampledToken token;
        token.token = model_token(rows.sequence->request.id, rows.first_position + rows.num_rows - 1);
        sampled[rank].push_back(token);
      }
    }
  }
  return sampled;
}

// The plan as text: kind, then per rank "id:first+rows" with "!" where a token is sampled. "P [0:0+3! 2:0+1] [1:0+4]"
inline std::string describe(const StepPlan& plan) {
  std::string text = fmt::format("{}", plan.kind == StepKind::prefill ? 'P' : 'D');
  for (const auto& rank_rows : plan.rows_of_rank) {
    std::vector<std::string> parts;
    for (const SequenceRows& rows : rank_rows) {
      parts.push_back(fmt::format("{}:{}+{}{}", rows.sequence->request.id, rows.first_position, rows.num_rows,
                                  rows.samples ? "!" : ""));
    }
    text += fmt::format(" [{}]", fmt::join(parts, " "));
  }
  return text;
}

// Checks a plan against the limits and against all plans before it.
class PlanChecker {
 public:
  explicit PlanChecker(const SchedulerLimits& limits) : limits_(limits) {}

  void check(const StepPlan& plan) {
    require(static_cast<std::int64_t>(plan.rows_of_rank.size()) == limits_.num_ranks, "a list of rows per rank");
    require(plan.total_rows() > 0, "a step computes something");
    for (std::int64_t rank = 0; rank < limits_.num_ranks; ++rank) {
      check_rank(plan, rank);
    }
  }

  void finish(const FinishedSequence& finished) { sequences_.erase(finished.request.id); }

 private:
  struct Known {
    std::int64_t rank = 0;
    std::int64_t num_computed = 0;
    std::vector<std::int32_t> blocks;
  };

  // Catch's own macro for each of millions of conditions would be slow.
  static void require(bool holds, const char* what) {
    if (!holds) {
      FAIL("violated: " << what);
    }
  }

  void check_rank(const StepPlan& plan, std::int64_t rank) {
    const auto& rank_rows = plan.rows_of_rank[static_cast<std::size_t>(rank)];
    const bool is_prefill = plan.kind == StepKind::prefill;
    require(!is_prefill || plan.num_rows(rank) <= limits_.prefill_chunk, "at most a chunk of prompt rows");
    require(static_cast<std::int64_t>(rank_rows.size()) <= limits_.max_sequences_per_rank, "at most so many sequences");
    for (const SequenceRows& rows : rank_rows) {
      check_rows(rows, rank, is_prefill);
    }
    std::set<std::int32_t> taken;
    std::int64_t num_sequences = 0;
    for (const auto& [id, known] : sequences_) {
      if (known.rank == rank) {
        ++num_sequences;
        for (const std::int32_t block : known.blocks) {
          require(block >= 0 && block < limits_.kv_blocks_per_rank, "block numbers are those of the rank");
          require(taken.insert(block).second, "blocks of sequences do not overlap");
        }
      }
    }
    require(num_sequences <= limits_.max_sequences_per_rank, "at most so many sequences live on a rank");
  }

  void check_rows(const SequenceRows& rows, std::int64_t rank, bool is_prefill) {
    const Sequence& sequence = *rows.sequence;
    const auto prompt_length = static_cast<std::int64_t>(sequence.request.prompt.size());
    auto [found, is_new] = sequences_.try_emplace(sequence.request.id, Known{rank, 0, sequence.kv.blocks});
    Known& known = found->second;
    require(known.rank == rank && sequence.rank == rank, "a sequence stays on its rank");
    require(known.blocks == sequence.kv.blocks, "a sequence keeps its blocks");
    require(static_cast<std::int64_t>(known.blocks.size()) * limits_.block_tokens >=
                prompt_length + sequence.request.max_tokens,
            "the blocks hold prompt and completion");
    require(rows.first_position == known.num_computed && rows.num_rows >= 1, "positions follow each other");
    const std::int64_t end = rows.first_position + rows.num_rows;
    require(end <= static_cast<std::int64_t>(sequence.tokens.size()), "rows are of known tokens");
    require(is_prefill ? end <= prompt_length : rows.num_rows == 1 && rows.first_position >= prompt_length,
            "prefill computes prompts, decode one token of each completion");
    require(rows.samples == (end == static_cast<std::int64_t>(sequence.tokens.size())), "the last known token samples");
    known.num_computed = end;
  }

  SchedulerLimits limits_;
  std::map<std::int64_t, Known> sequences_;  // planned at least once and not finished
};

}  // namespace metro::test
