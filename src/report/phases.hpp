// Where the time of a step went, seen over all ranks: from the laps of every rank to the phases that are reported.
#pragma once

#include "decoder/phase_clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace metro {

// Phases are laps, but for the time in collectives, which is split: `exchange` is the least time that any rank spent in
// them, taken for dispatch, combine and record one by one and added up; it is the same for all ranks. `waiting` is what
// a rank spent in them beyond that: it waited for slower ranks. A lower bound: where one rank is the slowest in one
// layer and another in the next, the part that they have in common counts as exchange.
enum class Phase : std::size_t { compute, routing, experts, exchange, waiting, sampling, requests, scheduling };
inline constexpr std::size_t num_phases = 8;

const char* name_of(Phase phase);         // "compute"
const char* description_of(Phase phase);  // "attention and dense layers"

// What one rank measured in one step.
struct RankStep {
  LapSeconds seconds{};
  std::int64_t bytes_sent = 0;
};
static_assert(sizeof(RankStep) == sizeof(LapSeconds) + sizeof(std::int64_t), "it travels as bytes: no gaps");

// Seconds over ranks, indexed by Phase.
struct PhaseSeconds {
  std::array<float, num_phases> max{}, mean{};
};

// ranks [num_ranks], at least one.
PhaseSeconds phases_of(std::span<const RankStep> ranks);

}  // namespace metro
