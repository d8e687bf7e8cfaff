// `metro inspect`: what a checkpoint file holds, and whether it is undamaged; or the summary of a run from its
// metrics.h5.
#pragma once

#include "base/error.hpp"

#include <string>

namespace metro {

struct InspectOptions {
  std::string path;
  bool verify = true;    // of a checkpoint: read every tensor and check its digest
  bool as_json = false;  // of a metrics.h5
};

// Prints to standard output. Throws what inspect_checkpoint and inspect_metrics throw, and Error(usage) when a
// checkpoint shall be JSON.
ExitCode inspect_command(const InspectOptions& options);

}  // namespace metro
