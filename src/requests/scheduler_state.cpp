// The scheduler's state and admission.
#include "requests/scheduler_state.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <cmath>

namespace metro {

namespace {

void require_valid(const SchedulerLimits& limits) {
  METRO_REQUIRE(limits.num_ranks >= 1, fmt::format("num_ranks {}", limits.num_ranks));
  METRO_REQUIRE(limits.max_sequences_per_rank >= 1,
                fmt::format("max_sequences_per_rank {}", limits.max_sequences_per_rank));
  METRO_REQUIRE(limits.prefill_chunk >= 1, fmt::format("prefill_chunk {}", limits.prefill_chunk));
  METRO_REQUIRE(limits.prefill_min >= 0.0 && limits.prefill_min <= 1.0,
                fmt::format("prefill_min {}", limits.prefill_min));
  METRO_REQUIRE(limits.kv_blocks_per_rank >= 1, fmt::format("kv_blocks_per_rank {}", limits.kv_blocks_per_rank));
  METRO_REQUIRE(limits.block_tokens >= 1, fmt::format("block_tokens {}", limits.block_tokens));
  METRO_REQUIRE(limits.rope_switch_at >= 0, fmt::format("rope_switch_at {}", limits.rope_switch_at));
}

}  // namespace

// Every rank knows those of all ranks, so their number is bounded over all: at 16 tokens a block by half a million
// blocks, which take about 75 MB on each rank.
std::int64_t SchedulerLimits::most_prefix_blocks() const {
  constexpr std::int64_t most_words = std::int64_t{1} << 24;
  constexpr std::int64_t words_beside_tokens = 16;
  const std::int64_t block_words = block_tokens + words_beside_tokens;
  return share_prefixes ? std::clamp<std::int64_t>(most_words / block_words / num_ranks, 1, kv_blocks_per_rank) : 0;
}

Scheduler::Impl::Impl(const SchedulerLimits& given) : limits(given) {
  require_valid(limits);
  std::sort(limits.end_tokens.begin(), limits.end_tokens.end());
  const double full_step = static_cast<double>(limits.num_ranks) * static_cast<double>(limits.prefill_chunk);
  prefill_threshold = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(limits.prefill_min * full_step)));
  prompt_tokens.resize(static_cast<std::size_t>(limits.num_ranks));
  for (std::int64_t rank = 0; rank < limits.num_ranks; ++rank) {
    ranks.push_back({{}, RankBlocks(limits.kv_blocks_per_rank, limits.block_tokens, limits.most_prefix_blocks())});
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

// Only blocks that lie wholly in the prompt are shared: of what is generated, the form may differ. The last token that
// was given is computed in any case, since its logits are wanted, and so is a prompt whose tokens are scored.
BlockWish Scheduler::Impl::wish_of(const Request& request) const {
  const std::int64_t prompt_length = std::ssize(request.prompt);
  const std::int64_t num_given = prompt_length + std::ssize(request.generated);
  const std::int64_t longest = prompt_length + request.max_tokens - 1;  // the last token's position is not computed
  BlockWish wish;
  wish.num_blocks = num_blocks_for(request);
  wish.form = rope_set_for(num_given);
  wish.prefix = request.prompt;
  wish.most_shared = request.scores_prompt ? 0 : std::min(prompt_length, num_given - 1) / limits.block_tokens;
  wish.may_leave = wish.form != rope_set_for(longest);
  return wish;
}

bool Scheduler::Impl::admit(Request& request) {
  const BlockWish wish = wish_of(request);
  for (const auto& [load, rank] : ranks_by_load) {
    if (load >= limits.max_sequences_per_rank) {
      return false;  // so are all behind it
    }
    if (auto held = ranks[static_cast<std::size_t>(rank)].blocks.take(wish)) {
      start(std::move(request), rank, std::move(*held));
      return true;
    }
  }
  return false;
}

void Scheduler::Impl::start(Request request, std::int64_t rank, HeldBlocks held) {
  RankState& home = ranks[static_cast<std::size_t>(rank)];
  Running running;
  Sequence& sequence = running.sequence;
  std::vector<SampledToken> earlier = std::exchange(request.generated, {});
  running.num_generated = std::ssize(earlier);
  sequence.num_given = std::ssize(request.prompt) + running.num_generated;
  sequence.prefill_end = sequence.num_given;
  sequence.rope_set = rope_set_for(sequence.num_given);
  sequence.num_computed = held.num_shared * limits.block_tokens;
  prompt_tokens[static_cast<std::size_t>(rank)].num_shared += sequence.num_computed;
  if (keeps_tokens_of(rank)) {
    sequence.tokens = request.prompt;
    for (const SampledToken& one : earlier) {
      sequence.tokens.push_back(one.token);
    }
    running.generated = std::move(earlier);
  }
  sequence.request = std::move(request);
  sequence.rank = rank;
  sequence.kv = std::move(held);
  const Digest blocks_digest = digest_of_values(std::span<const std::int32_t>(sequence.kv.blocks));
  remember(std::vector<std::int64_t>{sequence.request.id, rank, static_cast<std::int64_t>(blocks_digest)});
  num_waiting_rows += running.num_waiting_rows();
  home.running.push_back(std::move(running));
  change_load(rank, +1);
  ++num_admitted_since_decode;
}

void Scheduler::Impl::admit_waiting() {
  while (!waiting.empty() && !is_full) {
    if (admit(waiting.front())) {
      waiting.pop_front();
    } else {
      is_full = true;  // the head of the queue waits, and everything behind it
    }
  }
}

}  // namespace metro
