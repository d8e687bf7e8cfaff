// `metro convert`: a Hugging Face folder in, a checkpoint file out.
#pragma once

#include "base/error.hpp"

#include <string>

namespace metro {

struct ConvertOptions {
  std::string hf_folder;
  std::string output;
  bool overwrite = false;
  std::string weights = "stored";  // or int8
};

// Converts, with progress on standard error, and prints what was written. Throws what convert_checkpoint throws.
ExitCode convert_command(const ConvertOptions& options);

}  // namespace metro
