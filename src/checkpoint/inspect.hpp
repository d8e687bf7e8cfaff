// `metro inspect`: what a checkpoint holds, and whether its bytes are what was written.
#pragma once

#include <cstdio>
#include <string>

namespace metro {

// Prints the model, the source files and every dataset (shape, stored type, bytes; experts summarised) to `out`.
// With `verify` reads all tensors and checks their digests; throws Error(checkpoint) naming the first damaged tensor.
void inspect_checkpoint(const std::string& path, bool verify, std::FILE* out);

}  // namespace metro
