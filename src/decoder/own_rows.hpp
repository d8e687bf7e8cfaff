// What both dispatches start from.
#pragma once

#include "base/integers.hpp"
#include "kernels/mirror.hpp"

#include <cstdint>
#include <span>

namespace metro {

// Rows of this rank that enter a MoE layer, and what the gate chose for them: kernels write it, and the host reads it
// once it has waited.
struct OwnRows {
  const float* rows = nullptr;                       // [num_rows, H], memory of kernels
  std::int64_t num_assignments = 0;                  // num_rows * top_k
  const Mirror<std::int32_t>* expert_ids = nullptr;  // [num_assignments] or more
  const Mirror<float>* expert_weights = nullptr;     // likewise

  // For the host.
  std::span<const std::int32_t> host_ids() const { return expert_ids->span().first(at(num_assignments)); }
  std::span<const float> host_weights() const { return expert_weights->span().first(at(num_assignments)); }

  // Enqueues the copies to the host.
  void to_host() const {
    expert_ids->to_host(num_assignments);
    expert_weights->to_host(num_assignments);
  }
};

}  // namespace metro
