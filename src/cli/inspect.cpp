#include "cli/inspect_command.hpp"

#include "checkpoint/inspect.hpp"
#include "cli/standard_output.hpp"

#include <cstdio>

namespace metro {

ExitCode inspect_command(const InspectOptions& options) {
  inspect_checkpoint(options.path, options.verify, stdout);
  flush_stdout();
  return ExitCode::done;
}

}  // namespace metro
