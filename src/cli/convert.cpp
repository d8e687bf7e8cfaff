#include "cli/convert_command.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "checkpoint/convert.hpp"
#include "cli/progress_line.hpp"
#include "cli/standard_output.hpp"
#include "deck/byte_size.hpp"
#include "tokenizer/tokenizer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace metro {

namespace {

// A tokenizer that no run could load is refused now, not when the job has started.
void check_tokenizer(const std::string& hf_folder) {
  try {
    Tokenizer::load([&](const std::string& name) -> std::optional<std::string> {
      const std::filesystem::path path = std::filesystem::path(hf_folder) / name;
      return std::filesystem::exists(path) ? std::optional(read_file(path.string(), ExitCode::checkpoint))
                                           : std::nullopt;
    });
  } catch (const Error& error) {
    throw Error(error.exit_code(), fmt::format("{}/{}", hf_folder, error.what()));
  }
}

}  // namespace

ExitCode convert_command(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  ProgressLine line(stderr, ::isatty(STDERR_FILENO) == 1);
  const auto show_progress = [&](const ConvertProgress& progress) {
    const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
    line.update(elapsed_s, progress.bytes_done, progress.bytes_total, progress.tensor);
  };

  const ConvertedWeights weights = converted_weights_of(options.weights);
  check_tokenizer(options.hf_folder);
  const ConvertSummary summary =
      convert_checkpoint(options.hf_folder, options.output, options.overwrite, show_progress, weights);

  line.close();
  std::string text = fmt::format("wrote {}: {} tensors, {}\n", options.output, summary.num_tensors,
                                 rounded_byte_size(summary.num_bytes));
  for (const std::string& note : summary.notes) {
    text += fmt::format("note: {}\n", one_line(note));
  }
  print_to_stdout(text);
  return ExitCode::done;
}

}  // namespace metro
