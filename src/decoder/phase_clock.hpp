// Where the time of a step goes on this rank: a stopwatch whose laps are added up by what was being done.
// Times are for people only: nothing a rank does may depend on them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace metro {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// What a rank does during a step, in the order in which it first does it.
enum class Lap : std::size_t {
  requests,    // reading and handing out requests, writing completions
  scheduling,  // planning the step, applying its tokens
  compute,     // attention and everything else that is dense, for own rows
  routing,     // choosing replicas, packing and unpacking messages
  dispatch,    // in collectives that bring rows to the experts
  experts,     // the experts of this rank
  combine,     // in collectives that bring results back
  sampling,    // from logits to tokens
  record,      // in the collective that exchanges tokens
};
inline constexpr std::size_t num_laps = 9;
using LapSeconds = std::array<double, num_laps>;  // indexed by Lap

class PhaseClock {
 public:
  // The next lap begins now. What was added up so far stays.
  void start() { start_at(Clock::now()); }
  // What happened since start() or the last lap was `what`.
  void lap(Lap what) { lap_at(what, Clock::now()); }

  // The same at a given time, not before the time of the last call.
  void start_at(Clock::time_point now) { last_ = now; }
  void lap_at(Lap what, Clock::time_point now) {
    sums_[static_cast<std::size_t>(what)] += now - last_;
    last_ = now;
  }

  // Seconds per lap since the last call of take().
  LapSeconds take() {
    LapSeconds seconds{};
    for (std::size_t lap = 0; lap < num_laps; ++lap) {
      seconds[lap] = std::chrono::duration<double>(sums_[lap]).count();
    }
    sums_.fill(Clock::duration::zero());
    return seconds;
  }

 private:
  Clock::time_point last_ = Clock::now();
  std::array<Clock::duration, num_laps> sums_{};
};

}  // namespace metro
