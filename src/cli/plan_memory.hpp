// `metro plan --model` without a trace or loads: the memory of a rank, and on how many GPUs the model fits.
#pragma once

#include "checkpoint/weight_reader.hpp"
#include "cli/plan_command.hpp"

#include <memory>
#include <string>

namespace metro {

// The tensors of the model that --model names: of a checkpoint as they are, of a config.json as they are published. Of
// the latter no weights can be read. Throws Error(checkpoint).
std::unique_ptr<WeightReader> named_model(const std::string& path);

// Prints both for options.model_path, a checkpoint or a config.json, of which no weights are read. Throws Error(usage)
// for options.overrides, Error(checkpoint) for the model.
void plan_memory(const PlanOptions& options);

}  // namespace metro
