// What both dispatches start from.
#pragma once

#include <cstdint>
#include <span>

namespace metro {

// Rows of this rank that enter a MoE layer.
struct OwnRows {
  const float* rows = nullptr;               // [num_rows, H]
  std::span<const std::int32_t> expert_ids;  // [num_rows * top_k]
};

}  // namespace metro
