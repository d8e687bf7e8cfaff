// `metro inspect`: what a checkpoint file holds, and whether it is undamaged; or the summary of a run from its
// metrics.h5.
#pragma once

#include "base/error.hpp"

#include <string>

namespace metro {

struct InspectOptions {
  std::string path;
  bool verify = true;  // of a checkpoint: read every tensor and check its digest
};

// Prints to standard output. Throws what inspect_checkpoint and inspect_metrics throw.
ExitCode inspect_command(const InspectOptions& options);

}  // namespace metro
