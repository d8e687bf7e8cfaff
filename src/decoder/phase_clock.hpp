// Where the time of a step goes on this rank: a stopwatch whose laps are added up by what was being done. On a device
// the host is ahead of the kernels, so that laps end when the queue comes past them; what the host does meanwhile is
// time in which the queue is empty, and counts to the lap that ends next. Times are for people only: nothing a rank
// does may depend on them.
#pragma once

#include "kernels/queue.hpp"
#include "kernels/queue_marks.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

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
  void start() {
    if (kernels_use_host_memory()) {
      start_at(Clock::now());
    } else {
      mark(num_laps);
    }
  }
  // What happened since start() or the last lap was `what`.
  void lap(Lap what) {
    if (kernels_use_host_memory()) {
      lap_at(what, Clock::now());
    } else {
      mark(static_cast<std::size_t>(what));
    }
  }

  // The same at a given time, not before the time of the last call; on the host.
  void start_at(Clock::time_point now) { last_ = now; }
  void lap_at(Lap what, Clock::time_point now) {
    sums_[static_cast<std::size_t>(what)] += now - last_;
    last_ = now;
  }

  // Seconds per lap since the last call of take(). Waits for the kernels.
  LapSeconds take() {
    add_up_marks();
    LapSeconds seconds{};
    for (std::size_t lap = 0; lap < num_laps; ++lap) {
      seconds[lap] = std::chrono::duration<double>(sums_[lap]).count();
    }
    sums_.fill(Clock::duration::zero());
    return seconds;
  }

 private:
  static constexpr std::size_t most_marks = 4096;  // more than a step of a hundred layers has

  // Of a device: what ends here; num_laps: nothing that counts.
  void mark(std::size_t lap) {
    if (marked_laps_.size() == most_marks) {
      add_up_marks();  // a clock that nobody looks at
    }
    marks_.add();
    marked_laps_.push_back(lap);
  }

  void add_up_marks() {
    if (marked_laps_.size() < 2) {
      return;
    }
    marks_.take(mark_seconds_);
    for (std::size_t i = 0; i < mark_seconds_.size(); ++i) {
      if (marked_laps_[i + 1] < num_laps) {
        sums_[marked_laps_[i + 1]] +=
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(mark_seconds_[i]));
      }
    }
    marked_laps_.assign(1, num_laps);  // the last mark begins the next lap
  }

  Clock::time_point last_ = Clock::now();
  std::array<Clock::duration, num_laps> sums_{};
  QueueMarks marks_;
  std::vector<std::size_t> marked_laps_;  // lap that each mark ends
  std::vector<double> mark_seconds_;
};

}  // namespace metro
