#include "cli/progress_line.hpp"

#include "deck/byte_size.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace metro {

namespace {

constexpr double terminal_interval_s = 0.1;
constexpr double log_interval_s = 5.0;
constexpr std::size_t most_columns = 79;  // a longer line would wrap and could not be rewritten

}  // namespace

void ProgressLine::update(double elapsed_s, std::int64_t bytes_done, std::int64_t bytes_total,
                          const std::string& what) {
  const double share = bytes_total > 0 ? static_cast<double>(bytes_done) / static_cast<double>(bytes_total) : 1.0;
  update_share(elapsed_s, share,
               fmt::format("{} of {}  {}", rounded_byte_size(bytes_done), rounded_byte_size(bytes_total), what));
}

void ProgressLine::update_share(double elapsed_s, double share, const std::string& what) {
  const bool complete = is_terminal_ && share >= 1.0;
  if (elapsed_s - last_shown_s_ < (is_terminal_ ? terminal_interval_s : log_interval_s) && !complete) {
    return;
  }
  last_shown_s_ = elapsed_s;
  std::string line = fmt::format("{:3.0f}%  {}", 100.0 * share, what);
  // Progress is a courtesy: a failed write here must not fail the command.
  if (!is_terminal_) {
    fmt::print(out_, "{}\n", line);
  } else {
    line.resize(std::min(line.size(), most_columns));
    fmt::print(out_, "\r{:<{}}", line, line_length_);
    line_length_ = line.size();
  }
  std::fflush(out_);
}

void ProgressLine::close() {
  if (line_length_ > 0) {
    std::fputc('\n', out_);
    line_length_ = 0;
  }
}

}  // namespace metro
