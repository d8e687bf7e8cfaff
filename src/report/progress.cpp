#include "report/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace metro {

namespace {

constexpr std::int64_t bar_width = 24;
constexpr std::size_t most_columns = 79;  // a longer line would wrap and could not be rewritten

// "0:42", "3:05:00"
std::string clock_time(double seconds) {
  const auto total = static_cast<std::int64_t>(std::ceil(seconds));
  const std::int64_t hours = total / 3600;
  const std::int64_t minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{}:{:02}", minutes, total % 60);
}

// All requests of the input, as far as that is known; 0 if it is not.
double expected_requests(const ProgressState& state) {
  if (state.input_ended) {
    return static_cast<double>(state.num_requests);
  }
  return state.input_share > 0.0 ? static_cast<double>(state.num_requests) / state.input_share : 0.0;
}

std::string total_text(const ProgressState& state, double expected) {
  if (state.input_ended) {
    return fmt::format("{}", state.num_requests);
  }
  return expected > 0.0 ? fmt::format("about {:.0f}", expected) : fmt::format("{}+", state.num_requests);
}

}  // namespace

std::string progress_line(const ProgressState& state, bool bar) {
  const double expected = expected_requests(state);
  const auto done = static_cast<double>(state.num_done);
  const double share = expected > 0.0 ? std::min(1.0, done / expected) : 0.0;
  std::string line;
  if (bar && expected > 0.0) {
    const auto filled = static_cast<std::int64_t>(share * static_cast<double>(bar_width));
    line = fmt::format("[{:.<{}}] {:3.0f}% ", std::string(static_cast<std::size_t>(filled), '#'), bar_width,
                       std::floor(100.0 * share));
  }
  line += fmt::format("{}/{} requests, {} running, {:.0f} tokens/s", state.num_done, total_text(state, expected),
                      state.num_running,
                      state.elapsed_s > 0.0 ? static_cast<double>(state.num_generated) / state.elapsed_s : 0.0);
  if (expected > 0.0 && state.num_done > 0) {
    line += fmt::format(", {} left", clock_time(state.elapsed_s * std::max(0.0, expected - done) / done));
  }
  return line;
}

Progress::Progress(std::FILE* out, bool is_terminal)
    : out_(out), is_terminal_(is_terminal), interval_s_(is_terminal ? 0.2 : 10.0) {}

void Progress::update(const ProgressState& state) {
  if (state.elapsed_s - last_s_ < interval_s_) {
    return;
  }
  last_s_ = state.elapsed_s;
  shown_ = true;
  // Progress is a courtesy: a failed write here must not fail the run.
  std::string line = progress_line(state, is_terminal_);
  if (is_terminal_) {
    line.resize(std::min(line.size(), most_columns));
    fmt::print(out_, "\r\033[K{}", line);
  } else {
    fmt::print(out_, "  {}\n", line);
  }
  std::fflush(out_);
}

void Progress::finish() {
  if (is_terminal_ && shown_) {
    fmt::print(out_, "\r\033[K");
    std::fflush(out_);
  }
}

}  // namespace metro
