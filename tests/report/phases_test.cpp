#include "report/phases.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <numeric>

using metro::Lap;
using metro::Phase;
using metro::PhaseClock;
using metro::RankStep;
using std::chrono::milliseconds;

namespace {

double of(const metro::LapSeconds& seconds, Lap lap) {
  return seconds[static_cast<std::size_t>(lap)];
}
float of(const std::array<float, metro::num_phases>& seconds, Phase phase) {
  return seconds[static_cast<std::size_t>(phase)];
}

RankStep rank_with(double compute, double dispatch, double experts, double combine, double record) {
  RankStep rank;
  rank.seconds[static_cast<std::size_t>(Lap::compute)] = compute;
  rank.seconds[static_cast<std::size_t>(Lap::dispatch)] = dispatch;
  rank.seconds[static_cast<std::size_t>(Lap::experts)] = experts;
  rank.seconds[static_cast<std::size_t>(Lap::combine)] = combine;
  rank.seconds[static_cast<std::size_t>(Lap::record)] = record;
  return rank;
}

}  // namespace

TEST_CASE("laps of the same kind add up, and nothing between start and the last lap is lost") {
  const metro::Clock::time_point begin{};
  PhaseClock clock;
  clock.start_at(begin);

  clock.lap_at(Lap::compute, begin + milliseconds(10));
  clock.lap_at(Lap::dispatch, begin + milliseconds(11));
  clock.lap_at(Lap::experts, begin + milliseconds(31));
  clock.lap_at(Lap::compute, begin + milliseconds(36));
  const metro::LapSeconds seconds = clock.take();

  CHECK(of(seconds, Lap::compute) == Approx(0.015));
  CHECK(of(seconds, Lap::dispatch) == Approx(0.001));
  CHECK(of(seconds, Lap::experts) == Approx(0.020));
  CHECK(of(seconds, Lap::combine) == 0.0);
  CHECK(std::accumulate(seconds.begin(), seconds.end(), 0.0) == Approx(0.036));
}

TEST_CASE("taking the laps begins a new sum but not a new lap, starting begins a new lap but not a new sum") {
  const metro::Clock::time_point begin{};
  PhaseClock clock;
  clock.start_at(begin);
  clock.lap_at(Lap::sampling, begin + milliseconds(1));

  clock.take();
  clock.lap_at(Lap::requests, begin + milliseconds(4));
  clock.start_at(begin + milliseconds(10));
  clock.lap_at(Lap::requests, begin + milliseconds(12));
  const metro::LapSeconds seconds = clock.take();

  CHECK(of(seconds, Lap::sampling) == 0.0);
  CHECK(of(seconds, Lap::requests) == Approx(0.005));
}

TEST_CASE("waiting is the time in collectives beyond the least of all ranks, for each kind of collective") {
  // Rank 0 is slow before dispatch, rank 1 before combine; neither is slow before the record.
  const std::array ranks{rank_with(8.0, 1.0, 2.0, 6.0, 0.5), rank_with(3.0, 6.0, 7.0, 1.0, 0.5)};

  const metro::PhaseSeconds phases = metro::phases_of(ranks);

  CHECK(of(phases.max, Phase::exchange) == 2.5F);
  CHECK(of(phases.mean, Phase::exchange) == 2.5F);
  CHECK(of(phases.max, Phase::waiting) == 5.0F);
  CHECK(of(phases.mean, Phase::waiting) == 5.0F);
  CHECK(of(phases.max, Phase::compute) == 8.0F);
  CHECK(of(phases.mean, Phase::compute) == 5.5F);
  CHECK(of(phases.max, Phase::experts) == 7.0F);
  CHECK(of(phases.mean, Phase::experts) == 4.5F);
  CHECK(of(phases.max, Phase::sampling) == 0.0F);
}

TEST_CASE("a rank alone never waits, and the means of all phases add up to its time") {
  const std::array ranks{rank_with(1.0, 2.0, 4.0, 8.0, 16.0)};

  const metro::PhaseSeconds phases = metro::phases_of(ranks);

  CHECK(of(phases.max, Phase::waiting) == 0.0F);
  CHECK(std::accumulate(phases.mean.begin(), phases.mean.end(), 0.0F) == 31.0F);
}

TEST_CASE("every phase has a name of its own") {
  CHECK(std::string(metro::name_of(Phase::compute)) == "compute");
  CHECK(std::string(metro::name_of(Phase::scheduling)) == "scheduling");
  CHECK(std::string(metro::name_of(Phase::waiting)) == "waiting");
  CHECK(std::string(metro::description_of(Phase::waiting)) == "for slower ranks");
}
