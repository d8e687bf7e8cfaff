// What both dispatches start from.
#pragma once

#include <cstdint>
#include <span>

namespace metro {

// Rows of this rank that enter a MoE layer, and what the gate chose for them.
struct OwnRows {
  const float* rows = nullptr;         // [num_rows, H]
  std::span<std::int32_t> expert_ids;  // [num_rows * top_k]
  std::span<float> expert_weights;     // [num_rows * top_k]
};

}  // namespace metro
