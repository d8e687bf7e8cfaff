// How far a run is: on a terminal one line with a bar that is rewritten, elsewhere a plain line now and then.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace metro {

struct ProgressState {
  double elapsed_s = 0.0;          // since the first step
  std::int64_t num_done = 0;       // requests
  std::int64_t num_requests = 0;   // read so far
  bool input_ended = false;        // so num_requests is all of them
  double input_share = 0.0;        // of the input that was read, 0..1; 0 if that cannot be known
  std::int64_t num_running = 0;    // requests
  std::int64_t num_generated = 0;  // tokens
};

// "12/24 requests, 3 running, 5425 tokens/s, 0:02 left", with "[####....] 50%" in front if `bar` is wanted. How many
// requests there are is estimated from the share of the input that was read ("about"), or left open ("+").
std::string progress_line(const ProgressState& state, bool bar);

class Progress {
 public:
  // is_terminal: whether `out` is one.
  Progress(std::FILE* out, bool is_terminal);

  // Shows the state if the interval since the last time is over: 0.2 s on a terminal, 10 s elsewhere.
  void update(const ProgressState& state);
  // Clears the line of a terminal.
  void finish();

 private:
  std::FILE* out_;
  bool is_terminal_;
  double interval_s_;
  double last_s_ = 0.0;
  bool shown_ = false;
};

}  // namespace metro
