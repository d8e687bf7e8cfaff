// Published count tables (JSON) of models whose tokens were not published.
#pragma once

#include "trace/count_table.hpp"

#include <string>

namespace metro {

// {"layers": [model layers], "counts": [[num_experts integers] per layer]}. `model` says all but the layers.
// Both throw Error(input) naming the file, the key, and what check_count_table() finds.
CountTable read_layer_counts(const std::string& path, TraceModel model);

// DeepSeek-MoE-16B: {"LAYER-EXPERT": [sum of weights, count, mean weight]} for 27 layers of 64 experts, top 6. LAYER
// counts MoE layers from 0; the model has one dense layer before them.
CountTable read_deepseek_moe_counts(const std::string& path);

}  // namespace metro
