// The field quantization_config of a config.json: how published weights were made smaller.
#pragma once

#include "model/config_fields.hpp"

namespace metro {

// Accepts what the converter can read: no such field; "fp8" (e4m3, scales per 128 x 128 block); "mxfp4". Which tensors
// are stored so is told by their files, not by this field; how activations were meant to be rounded does not matter
// here, since they stay fp32. Throws Error(checkpoint) naming the field for anything else.
void check_quantization(const ConfigFields& config);

}  // namespace metro
