#include "cli/convert_command.hpp"

#include "checkpoint/convert.hpp"
#include "cli/progress_line.hpp"
#include "cli/standard_output.hpp"
#include "deck/byte_size.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace metro {

ExitCode convert_command(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  ProgressLine line(stderr, ::isatty(STDERR_FILENO) == 1);
  const auto show_progress = [&](const ConvertProgress& progress) {
    const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
    line.update(elapsed_s, progress.bytes_done, progress.bytes_total, progress.tensor);
  };

  const ConvertSummary summary =
      convert_checkpoint(options.hf_folder, options.output, options.overwrite, show_progress);

  line.close();
  std::string text = fmt::format("wrote {}: {} tensors, {}\n", options.output, summary.num_tensors,
                                 rounded_byte_size(summary.num_bytes));
  for (const std::string& note : summary.notes) {
    text += fmt::format("note: {}\n", note);
  }
  print_to_stdout(text);
  return ExitCode::done;
}

}  // namespace metro
