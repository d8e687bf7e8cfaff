// How far a long command is. On a terminal one line that is rewritten; in a log file a plain line now and then.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace metro {

class ProgressLine {
 public:
  ProgressLine(std::FILE* out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  ~ProgressLine() { close(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // elapsed_s: seconds since the command began, not decreasing. Shows "45%  120 MiB of 267 MiB  <what>" when the last
  // line is 0.1 s (terminal) or 5 s (else) old; on a terminal also when done equals total.
  void update(double elapsed_s, std::int64_t bytes_done, std::int64_t bytes_total, const std::string& what);

  // The same for work that is not counted in bytes: shows "45%  <what>". share: 0 to 1.
  void update_share(double elapsed_s, double share, const std::string& what);

  // Ends the line on a terminal, so that what follows begins on its own.
  void close();

 private:
  std::FILE* out_;
  bool is_terminal_;
  double last_shown_s_ = 0.0;
  std::size_t line_length_ = 0;  // bytes that stand on the open line of the terminal
};

}  // namespace metro
