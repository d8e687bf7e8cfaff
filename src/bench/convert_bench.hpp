// `metro bench convert`: writes a slice of a published model with random weights and converts it, beside a plain copy
// of as many bytes on the same file system.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace metro {

struct ConvertBenchOptions {
  std::string config_path;         // config.json of the model
  std::int64_t num_layers = 1;     // of the slice, the first ones
  std::string folder;              // new: the slice in hf/, the checkpoint model.h5; they stay there
  std::string weights = "stored";  // as `metro convert --weights`
};

// Prints a table. Throws Error(usage) for options, Error(checkpoint) for the config.json, Error(machine) when the disk
// is full.
void bench_convert(const ConvertBenchOptions& options, std::FILE* out);

}  // namespace metro
