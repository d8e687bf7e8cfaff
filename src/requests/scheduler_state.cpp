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
}

}  // namespace

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
  RankState& home = ranks[static_cast<std::size_t>(rank)];
  Running running;
  std::vector<SampledToken> earlier = std::exchange(request.generated, {});
  running.num_generated = std::ssize(earlier);
  running.sequence.num_given = std::ssize(request.prompt) + running.num_generated;
  if (keeps_tokens_of(rank)) {
    running.sequence.tokens = request.prompt;
    for (const SampledToken& one : earlier) {
      running.sequence.tokens.push_back(one.token);
    }
    running.generated = std::move(earlier);
  }
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

}  // namespace metro
