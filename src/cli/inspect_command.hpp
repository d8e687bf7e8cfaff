// `metro inspect`: what a checkpoint file holds, and whether it is undamaged.
#pragma once

#include "base/error.hpp"

#include <string>

namespace metro {

struct InspectOptions {
  std::string path;
  bool verify = true;  // read every tensor and check its digest
};

// Prints to standard output. Throws what inspect_checkpoint throws.
ExitCode inspect_command(const InspectOptions& options);

}  // namespace metro
