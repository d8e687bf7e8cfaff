#include "cli/inspect_command.hpp"

#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/inspect.hpp"
#include "cli/standard_output.hpp"
#include "hdf5/hdf5_table_reader.hpp"
#include "report/metrics_writer.hpp"
#include "report/summary.hpp"
#include "report/summary_json.hpp"
#include "tokenizer/tokenizer.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace metro {

ExitCode inspect_command(const InspectOptions& options) {
  if (hdf5_text_attribute_or_empty(options.path, "format", ExitCode::checkpoint) == metrics_format_name) {
    (options.as_json ? inspect_metrics_as_json : inspect_metrics)(options.path, stdout);
  } else if (options.as_json) {
    throw Error(ExitCode::usage, "inspect: --json: is for a metrics.h5, which " + one_line(options.path) + " is not");
  } else {
    CheckpointReader checkpoint(options.path);
    inspect_checkpoint(checkpoint, options.verify, stdout);
    const auto tokenizer = Tokenizer::load([&](const std::string& name) { return checkpoint.source_file(name); });
    print_to_stdout(fmt::format("tokenizer: {}\n", tokenizer != nullptr ? tokenizer->description() : "none"));
  }
  flush_stdout();
  return ExitCode::done;
}

}  // namespace metro
