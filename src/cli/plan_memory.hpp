// `metro plan --model` without a trace or loads: the memory of a rank, and on how many GPUs the model fits.
#pragma once

#include "cli/plan_command.hpp"

namespace metro {

// Prints both for options.model_path, a checkpoint or a config.json, of which no weights are read. Throws Error(usage)
// for options.overrides, Error(checkpoint) for the model.
void plan_memory(const PlanOptions& options);

}  // namespace metro
