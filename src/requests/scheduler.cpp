// Admission, the choice between prefill and decode, and what a step changes. No clock, no measurement, no floating
// point after the constructor: the same calls give the same state on every rank.
//
// Why every request finishes. Each step lowers the finite sum over unfinished requests of (prompt rows not computed +
// tokens not generated): a prefill step is chosen only when prompt rows wait and computes at least one, a decode step
// only when something decodes and generates at least one token. One of the two always holds: if nothing runs, all
// places and blocks are free and the head of the queue fits (add() refuses what never fits); what runs has prompt rows
// left or decodes. While the head of the queue waits nothing overtakes it, so ranks drain until it fits.
//
// Why neither side starves, also when requests come in for ever. Decoding sequences: between two decode steps at most
// twice as many prompts are computed as there are places. Without the rule on num_admitted_since_decode, completions
// that end with their first token could free and fill places for ever; all others leave the rule without effect, since
// a place that is filled then stays filled until the next decode step. Waiting rows: during decode steps no sequence
// joins the decoding ones and each of these loses a token per step, so they become fewer than half the places in time.
#include "requests/scheduler.hpp"

#include "base/error.hpp"
#include "requests/kv_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <list>
#include <optional>
#include <set>
#include <utility>

namespace metro {

namespace {

struct Running {
  Sequence sequence;
  std::vector<SampledToken> generated;
  std::int64_t num_planned_rows = 0;  // in the step that is planned
  bool samples = false;               // the planned rows end with one that gives a token

  std::int64_t num_waiting_rows() const {
    return std::max<std::int64_t>(0, static_cast<std::int64_t>(sequence.request.prompt.size()) - sequence.num_computed);
  }
  bool decodes() const { return num_waiting_rows() == 0; }
};

struct Rank {
  std::list<Running> running;  // in admission order; a list because plans point into it
  KvBlocks blocks;
};

void require_valid(const SchedulerLimits& limits) {
  METRO_REQUIRE(limits.num_ranks >= 1, fmt::format("num_ranks {}", limits.num_ranks));
  METRO_REQUIRE(limits.max_sequences_per_rank >= 1,
                fmt::format("max_sequences_per_rank {}", limits.max_sequences_per_rank));
  METRO_REQUIRE(limits.prefill_chunk >= 1, fmt::format("prefill_chunk {}", limits.prefill_chunk));
  METRO_REQUIRE(limits.prefill_min >= 0.0 && limits.prefill_min <= 1.0,
                fmt::format("prefill_min {}", limits.prefill_min));
  METRO_REQUIRE(limits.kv_blocks_per_rank >= 1, fmt::format("kv_blocks_per_rank {}", limits.kv_blocks_per_rank));
  METRO_REQUIRE(limits.block_tokens >= 1, fmt::format("block_tokens {}", limits.block_tokens));
}

}  // namespace

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

struct Scheduler::Impl {
  SchedulerLimits limits;              // end_tokens sorted
  std::int64_t prefill_threshold = 1;  // waiting rows from which a step is prefill
  std::deque<Request> waiting;
  std::vector<Rank> ranks;
  std::set<std::pair<std::int64_t, std::int64_t>> ranks_by_load;  // (number of running sequences, rank)

  std::int64_t num_running = 0;
  std::int64_t num_waiting_rows = 0;  // prompt rows of running sequences that are not computed
  std::int64_t num_decoding = 0;      // running sequences whose prompt is computed
  std::int64_t num_admitted_since_decode = 0;
  bool is_planned = false;
  Digest history = 0;  // of all requests added, all admissions and all tokens

  explicit Impl(const SchedulerLimits& given);
  std::int64_t num_blocks_for(const Request& request) const;
  void remember(std::span<const std::int64_t> event);

  void admit_waiting();
  std::optional<std::int64_t> rank_with_room(std::int64_t num_blocks) const;
  void start(Request request, std::int64_t rank, std::int64_t num_blocks);

  StepKind choose_kind() const;
  std::vector<SequenceRows> plan_prompt_rows(Rank& rank) const;
  std::vector<SequenceRows> plan_decode_rows(Rank& rank) const;

  void require_matching(const std::vector<std::vector<SampledToken>>& sampled_of_rank) const;
  FinishReason append(Running& running, SampledToken sampled);
  void finish_rows(Running& running);
  void apply_rank(std::int64_t rank, std::vector<SampledToken>& sampled, std::vector<FinishedSequence>& finished);
  void change_load(std::int64_t rank, std::int64_t change);
};

Scheduler::Impl::Impl(const SchedulerLimits& given) : limits(given) {
  require_valid(limits);
  std::sort(limits.end_tokens.begin(), limits.end_tokens.end());
  const double full_step = static_cast<double>(limits.num_ranks) * static_cast<double>(limits.prefill_chunk);
  prefill_threshold = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(limits.prefill_min * full_step)));
  for (std::int64_t rank = 0; rank < limits.num_ranks; ++rank) {
    ranks.push_back({{}, KvBlocks(limits.kv_blocks_per_rank)});
    ranks_by_load.emplace(0, rank);
  }
}

std::int64_t Scheduler::Impl::num_blocks_for(const Request& request) const {
  const auto num_tokens = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
  return (num_tokens + limits.block_tokens - 1) / limits.block_tokens;
}

void Scheduler::Impl::remember(std::span<const std::int64_t> event) {
  const Digest chain[] = {history, digest_of_values(event)};
  history = digest_of_values(std::span<const Digest>(chain));
}

void Scheduler::Impl::change_load(std::int64_t rank, std::int64_t change) {
  const auto load = static_cast<std::int64_t>(ranks[static_cast<std::size_t>(rank)].running.size());
  METRO_REQUIRE(ranks_by_load.erase({load - change, rank}) == 1, fmt::format("load of rank {}", rank));
  ranks_by_load.emplace(load, rank);
  num_running += change;
}

// ---- admission ----

std::optional<std::int64_t> Scheduler::Impl::rank_with_room(std::int64_t num_blocks) const {
  for (const auto& [load, rank] : ranks_by_load) {
    if (load >= limits.max_sequences_per_rank) {
      return std::nullopt;  // so are all behind it
    }
    if (ranks[static_cast<std::size_t>(rank)].blocks.num_free() >= num_blocks) {
      return rank;
    }
  }
  return std::nullopt;
}

void Scheduler::Impl::start(Request request, std::int64_t rank, std::int64_t num_blocks) {
  Rank& home = ranks[static_cast<std::size_t>(rank)];
  Running running;
  running.sequence.tokens = request.prompt;
  running.sequence.request = std::move(request);
  running.sequence.rank = rank;
  running.sequence.kv_blocks = home.blocks.take(num_blocks);
  const Digest blocks_digest = digest_of_values(std::span<const std::int32_t>(running.sequence.kv_blocks));
  remember(std::vector<std::int64_t>{running.sequence.request.id, rank, static_cast<std::int64_t>(blocks_digest)});
  num_waiting_rows += running.num_waiting_rows();
  home.running.push_back(std::move(running));
  change_load(rank, +1);
  ++num_admitted_since_decode;
}

void Scheduler::Impl::admit_waiting() {
  while (!waiting.empty()) {
    const std::int64_t num_blocks = num_blocks_for(waiting.front());
    const auto rank = rank_with_room(num_blocks);
    if (!rank) {
      return;  // the head of the queue waits, and everything behind it
    }
    start(std::move(waiting.front()), *rank, num_blocks);
    waiting.pop_front();
  }
}

// ---- planning ----

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

std::vector<SequenceRows> Scheduler::Impl::plan_prompt_rows(Rank& rank) const {
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

std::vector<SequenceRows> Scheduler::Impl::plan_decode_rows(Rank& rank) const {
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

// ---- the end of a step ----

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
  running.sequence.num_computed += running.num_planned_rows;
  num_waiting_rows -= num_waiting_before - running.num_waiting_rows();
  if (!decoded_before && running.decodes()) {
    ++num_decoding;
  }
}

FinishReason Scheduler::Impl::append(Running& running, SampledToken sampled) {
  const Request& request = running.sequence.request;
  const std::int32_t token = sampled.token;
  running.sequence.tokens.push_back(token);
  running.generated.push_back(std::move(sampled));
  if (!request.ignore_eos && std::binary_search(limits.end_tokens.begin(), limits.end_tokens.end(), token)) {
    return FinishReason::stop;
  }
  const bool is_full = static_cast<std::int64_t>(running.generated.size()) >= request.max_tokens;
  return is_full ? FinishReason::length : FinishReason::none;
}

void Scheduler::Impl::apply_rank(std::int64_t rank, std::vector<SampledToken>& sampled,
                                 std::vector<FinishedSequence>& finished) {
  Rank& home = ranks[static_cast<std::size_t>(rank)];
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
      ++running;
      continue;
    }
    home.blocks.give_back(running->sequence.kv_blocks);
    finished.push_back({std::move(running->sequence.request), std::move(running->generated), reason});
    running = home.running.erase(running);
    --num_decoding;
    change_load(rank, -1);
  }
}

// ---- the public functions ----

Scheduler::Scheduler(const SchedulerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
Scheduler::~Scheduler() = default;

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
    METRO_REQUIRE(impl_->num_blocks_for(request) <= impl_->limits.kv_blocks_per_rank,
                  fmt::format("request {} needs {} KV blocks, a rank has {}", request.id,
                              impl_->num_blocks_for(request), impl_->limits.kv_blocks_per_rank));
    const Digest prompt_digest = digest_of_values(std::span<const std::int32_t>(request.prompt));
    impl_->remember(std::vector<std::int64_t>{request.id, static_cast<std::int64_t>(prompt_digest), request.max_tokens,
                                              request.ignore_eos ? 1 : 0, request.num_logprobs});
    impl_->waiting.push_back(std::move(request));
  }
}

StepPlan Scheduler::plan_step() {
  METRO_REQUIRE(!impl_->is_planned, "the planned step was not applied");
  METRO_REQUIRE(!idle(), "no request is waiting or running");

  impl_->admit_waiting();
  StepPlan plan;
  plan.kind = impl_->choose_kind();
  for (Rank& rank : impl_->ranks) {
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

Digest Scheduler::digest() const {
  std::vector<std::int64_t> state{static_cast<std::int64_t>(impl_->history),
                                  num_waiting(),
                                  num_running(),
                                  impl_->num_waiting_rows,
                                  impl_->num_decoding,
                                  impl_->num_admitted_since_decode,
                                  impl_->is_planned ? 1 : 0};
  for (const Rank& rank : impl_->ranks) {
    state.push_back(rank.blocks.num_free());
    for (const Running& running : rank.running) {
      state.push_back(running.sequence.request.id);
      state.push_back(static_cast<std::int64_t>(running.sequence.tokens.size()));
      state.push_back(running.sequence.num_computed);
      state.push_back(running.num_planned_rows);
    }
  }
  return digest_of_values(std::span<const std::int64_t>(state));
}

}  // namespace metro
