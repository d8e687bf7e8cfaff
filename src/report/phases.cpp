#include "report/phases.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace metro {

namespace {

constexpr std::array collectives{Lap::dispatch, Lap::combine, Lap::record};

double seconds_of(const RankStep& rank, Lap lap) {
  return rank.seconds[static_cast<std::size_t>(lap)];
}

// Adds what one rank spent in a phase.
void add(PhaseSeconds& phases, Phase phase, double seconds) {
  const auto i = static_cast<std::size_t>(phase);
  phases.max[i] = std::max(phases.max[i], static_cast<float>(seconds));
  phases.mean[i] += static_cast<float>(seconds);
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr std::array<const char*, num_phases> names{"compute", "routing",  "experts",  "exchange",
                                                      "waiting", "sampling", "requests", "scheduling"};
  return names.at(static_cast<std::size_t>(phase));
}

const char* description_of(Phase phase) {
  constexpr std::array<const char*, num_phases> texts{"attention and all that is dense",
                                                      "choosing replicas, packing",
                                                      "the experts of a rank",
                                                      "collectives, without waiting",
                                                      "for slower ranks",
                                                      "from logits to tokens",
                                                      "reading and writing them",
                                                      "planning steps, applying tokens"};
  return texts.at(static_cast<std::size_t>(phase));
}

PhaseSeconds phases_of(std::span<const RankStep> ranks) {
  METRO_REQUIRE(!ranks.empty(), "no rank");
  double exchange = 0.0;
  for (const Lap lap : collectives) {
    double least = seconds_of(ranks.front(), lap);
    for (const RankStep& rank : ranks) {
      least = std::min(least, seconds_of(rank, lap));
    }
    exchange += least;
  }
  PhaseSeconds phases;
  for (const RankStep& rank : ranks) {
    double in_collectives = 0.0;
    for (const Lap lap : collectives) {
      in_collectives += seconds_of(rank, lap);
    }
    add(phases, Phase::compute, seconds_of(rank, Lap::compute));
    add(phases, Phase::routing, seconds_of(rank, Lap::routing));
    add(phases, Phase::experts, seconds_of(rank, Lap::experts));
    add(phases, Phase::exchange, exchange);
    add(phases, Phase::waiting, std::max(0.0, in_collectives - exchange));
    add(phases, Phase::sampling, seconds_of(rank, Lap::sampling));
    add(phases, Phase::requests, seconds_of(rank, Lap::requests));
    add(phases, Phase::scheduling, seconds_of(rank, Lap::scheduling));
  }
  for (float& mean : phases.mean) {
    mean /= static_cast<float>(ranks.size());
  }
  return phases;
}

}  // namespace metro
