// `metro inspect`: what a checkpoint holds, and whether its bytes are what was written.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"

#include <cstdio>

namespace metro {

// Prints the model, the source files and every dataset (shape, stored type, bytes; experts summarised) to `out`.
// With `verify` reads all tensors and checks their digests; throws Error(checkpoint) naming the first damaged tensor.
void inspect_checkpoint(CheckpointReader& reader, bool verify, std::FILE* out);

}  // namespace metro
