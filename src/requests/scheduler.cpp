// Admission, the choice between prefill and decode, and what a step changes. No clock, no measurement, no floating
// point after the constructor: the same calls give the same state on every rank.
//
// Why every request finishes. Each step lowers the finite sum over unfinished requests of (prompt rows not computed +
// tokens not generated): a prefill step is chosen only when prompt rows wait and computes at least one, a decode step
// only when something decodes and generates at least one token. (A sequence that changes its set of RoPE factors has
// its rows to compute again, but only once; it holds the blocks for that from the start.) One of the two always holds:
// if nothing runs, all places and blocks are free and the head of the queue fits (add() refuses what never fits); what
// runs has prompt rows left or decodes. While the head of the queue waits nothing overtakes it, so ranks drain until it
// fits.
//
// Why neither side starves, also when requests come in for ever. Decoding sequences: between two decode steps at most
// twice as many prompts are computed as there are places. Without the rule on num_admitted_since_decode, completions
// that end with their first token could free and fill places for ever; all others leave the rule without effect, since
// a place that is filled then stays filled until the next decode step. Waiting rows: during decode steps no sequence
// joins the decoding ones and each of these loses a token per step, so they become fewer than half the places in time.
#include "requests/scheduler.hpp"

#include "base/error.hpp"
#include "base/held_bytes.hpp"
#include "requests/scheduler_state.hpp"

#include <fmt/format.h>

namespace metro {

void Scheduler::Impl::require_matching(const std::vector<std::vector<SampledToken>>& sampled_of_rank) const {
  METRO_REQUIRE(static_cast<std::int64_t>(sampled_of_rank.size()) == limits.num_ranks,
                fmt::format("tokens of {} ranks, not {}", sampled_of_rank.size(), limits.num_ranks));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& running = ranks[rank].running;
    const auto expected = std::count_if(running.begin(), running.end(), [](const Running& r) { return r.samples; });
    METRO_REQUIRE(static_cast<std::int64_t>(sampled_of_rank[rank].size()) == expected,
                  fmt::format("rank {}: {} tokens, {} planned", rank, sampled_of_rank[rank].size(), expected));
    for (const SampledToken& sampled : sampled_of_rank[rank]) {
      METRO_REQUIRE(sampled.token >= 0, fmt::format("rank {}: token {}", rank, sampled.token));
    }
  }
}

void Scheduler::Impl::finish_rows(Running& running) {
  const bool decoded_before = running.decodes();
  const std::int64_t num_waiting_before = running.num_waiting_rows();
  const std::int64_t prompt_left = std::ssize(running.sequence.request.prompt) - running.sequence.num_computed;
  prompt_tokens[static_cast<std::size_t>(running.sequence.rank)].num_computed +=
      std::clamp<std::int64_t>(prompt_left, 0, running.num_planned_rows);
  running.sequence.num_computed += running.num_planned_rows;
  num_waiting_rows -= num_waiting_before - running.num_waiting_rows();
  if (!decoded_before && running.decodes()) {
    ++num_decoding;
  }
}

// The sequence has become longer than one set of factors is for: as at the start of a request that comes with tokens,
// all positions are to be computed, now with the other set and in blocks of its own.
void Scheduler::Impl::switch_rope_set(Running& running) {
  Sequence& sequence = running.sequence;
  ranks[static_cast<std::size_t>(sequence.rank)].blocks.leave_prefix(sequence.kv);
  sequence.rope_set = rope_set_for(running.num_tokens());
  sequence.prefill_end = running.num_tokens();
  sequence.num_computed = 0;
  num_waiting_rows += running.num_waiting_rows();
  --num_decoding;
  is_full = false;
}

FinishReason Scheduler::Impl::append(Running& running, SampledToken sampled) {
  const Request& request = running.sequence.request;
  const std::int32_t token = sampled.token;
  const std::int32_t stop_string = sampled.stop_string;
  if (keeps_tokens_of(running.sequence.rank)) {
    running.sequence.tokens.push_back(token);
    running.generated.push_back(std::move(sampled));
  }
  const std::int64_t num_generated = ++running.num_generated;
  const auto is_one_of = [&](const std::vector<std::int32_t>& tokens) {
    return std::binary_search(tokens.begin(), tokens.end(), token);
  };
  if (num_generated >= request.sampling.min_tokens) {
    if (!request.ignore_eos && is_one_of(limits.end_tokens)) {
      return FinishReason::stop;
    }
    if (is_one_of(request.sampling.stop_token_ids)) {
      return FinishReason::stop_token;
    }
    if (stop_string >= 0) {
      return FinishReason::stop_string;
    }
  }
  return num_generated >= request.max_tokens ? FinishReason::length : FinishReason::none;
}

void Scheduler::Impl::apply_rank(std::int64_t rank, std::vector<SampledToken>& sampled,
                                 std::vector<FinishedSequence>& finished) {
  RankState& home = ranks[static_cast<std::size_t>(rank)];
  auto next_sampled = sampled.begin();
  for (auto running = home.running.begin(); running != home.running.end();) {
    finish_rows(*running);
    running->num_planned_rows = 0;
    FinishReason reason = FinishReason::none;
    if (std::exchange(running->samples, false)) {
      reason = append(*running, std::move(*next_sampled));
      ++next_sampled;
    }
    if (reason == FinishReason::none) {
      if (running->decodes() && running->sequence.rope_set != rope_set_for(running->num_tokens())) {
        switch_rope_set(*running);
      }
      ++running;
      continue;
    }
    home.blocks.give_back(running->sequence.kv);
    is_full = false;
    finished.push_back({std::move(running->sequence.request), std::move(running->generated), reason});
    running = home.running.erase(running);
    --num_decoding;
    change_load(rank, -1);
  }
}

Scheduler::Scheduler(const SchedulerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
Scheduler::~Scheduler() = default;

const SchedulerLimits& Scheduler::limits() const {
  return impl_->limits;
}

std::int64_t Scheduler::num_waiting() const {
  return static_cast<std::int64_t>(impl_->waiting.size());
}
std::int64_t Scheduler::num_running() const {
  return impl_->num_running;
}

void Scheduler::add(std::vector<Request> requests) {
  for (Request& request : requests) {
    METRO_REQUIRE(!request.prompt.empty(), fmt::format("request {} has no prompt", request.id));
    METRO_REQUIRE(request.max_tokens >= 1, fmt::format("request {}: max_tokens {}", request.id, request.max_tokens));
    METRO_REQUIRE(
        std::ssize(request.generated) < request.max_tokens,
        fmt::format("request {} comes with {} tokens of {}", request.id, request.generated.size(), request.max_tokens));
    METRO_REQUIRE(impl_->num_blocks_for(request) <= impl_->limits.kv_blocks_per_rank,
                  fmt::format("request {} needs {} KV blocks, a rank has {}", request.id,
                              impl_->num_blocks_for(request), impl_->limits.kv_blocks_per_rank));
    const Digest digest = digest_of(pack_requests(std::span<const Request>(&request, 1)));
    impl_->remember(std::vector<std::int64_t>{static_cast<std::int64_t>(digest)});
    impl_->waiting.push_back(std::move(request));
  }
}

StepPlan Scheduler::plan_step() {
  METRO_REQUIRE(!impl_->is_planned, "the planned step was not applied");
  METRO_REQUIRE(!idle(), "no request is waiting or running");

  impl_->admit_waiting();
  StepPlan plan;
  plan.kind = impl_->choose_kind();
  for (RankState& rank : impl_->ranks) {
    plan.rows_of_rank.push_back(plan.kind == StepKind::prefill ? impl_->plan_prompt_rows(rank)
                                                               : impl_->plan_decode_rows(rank));
  }
  if (plan.kind == StepKind::decode) {
    impl_->num_admitted_since_decode = 0;
  }
  impl_->is_planned = true;
  return plan;
}

std::vector<FinishedSequence> Scheduler::apply(std::vector<std::vector<SampledToken>> sampled_of_rank) {
  METRO_REQUIRE(impl_->is_planned, "no step is planned");
  impl_->require_matching(sampled_of_rank);

  std::vector<std::int64_t> tokens;
  for (const auto& sampled : sampled_of_rank) {
    for (const SampledToken& one : sampled) {
      tokens.push_back(one.token);
      tokens.push_back(one.stop_string);
    }
  }
  impl_->remember(tokens);
  std::vector<FinishedSequence> finished;
  for (std::int64_t rank = 0; rank < impl_->limits.num_ranks; ++rank) {
    impl_->apply_rank(rank, sampled_of_rank[static_cast<std::size_t>(rank)], finished);
  }
  impl_->is_planned = false;
  return finished;
}

std::vector<UnfinishedSequence> Scheduler::unfinished() const {
  METRO_REQUIRE(impl_->limits.keeps_tokens_of == SchedulerLimits::all_ranks, "tokens of some ranks are not kept");
  std::vector<UnfinishedSequence> all;
  for (const RankState& rank : impl_->ranks) {
    for (const Running& running : rank.running) {
      all.push_back({&running.sequence.request, &running.generated});
    }
  }
  for (const Request& request : impl_->waiting) {
    all.push_back({&request, &request.generated});
  }
  return all;
}

const std::vector<PromptTokens>& Scheduler::prompt_tokens() const {
  return impl_->prompt_tokens;
}

std::int64_t Scheduler::num_bytes() const {
  // A node of a set or list holds its value and pointers to others.
  constexpr auto list_node = static_cast<std::int64_t>(sizeof(Running) + 2 * sizeof(void*));
  constexpr auto load_node = static_cast<std::int64_t>(2 * sizeof(std::int64_t) + 4 * sizeof(void*));
  const auto of_request = [](const Request& request) { return held_bytes(request.prompt); };
  std::int64_t bytes = static_cast<std::int64_t>(sizeof(Impl)) + held_bytes(impl_->prompt_tokens) +
                       std::ssize(impl_->ranks_by_load) * load_node;
  for (const RankState& rank : impl_->ranks) {
    bytes += static_cast<std::int64_t>(sizeof(RankState) - sizeof(RankBlocks)) + rank.blocks.num_bytes();
    for (const Running& running : rank.running) {
      bytes += list_node + held_bytes(running.generated) + of_request(running.sequence.request) +
               held_bytes(running.sequence.tokens) + running.sequence.kv.num_bytes();
    }
  }
  for (const Request& request : impl_->waiting) {
    bytes += static_cast<std::int64_t>(sizeof(Request)) + of_request(request);
  }
  return bytes;
}

Digest Scheduler::digest() const {
  std::vector<std::int64_t> state{static_cast<std::int64_t>(impl_->history),
                                  num_waiting(),
                                  num_running(),
                                  impl_->num_waiting_rows,
                                  impl_->num_decoding,
                                  impl_->num_admitted_since_decode,
                                  impl_->is_planned ? 1 : 0};
  for (const RankState& rank : impl_->ranks) {
    state.push_back(rank.blocks.num_available());
    for (const Running& running : rank.running) {
      state.push_back(running.sequence.request.id);
      state.push_back(running.num_tokens());
      state.push_back(running.sequence.num_computed);
      state.push_back(running.sequence.prefill_end);
      state.push_back(running.num_planned_rows);
    }
  }
  return digest_of_values(std::span<const std::int64_t>(state));
}

}  // namespace metro
