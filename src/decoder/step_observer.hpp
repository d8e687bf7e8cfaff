// Watches what the router and the routing of a step did: traces, statistics, tests.
#pragma once

#include <cstdint>
#include <span>

namespace metro {

// Watches what routing did; called on the rank it was given to.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Own rows: expert_ids, weights [num_rows, top_k].
  virtual void router_choices(std::int64_t /*moe_layer*/, std::int64_t /*num_rows*/,
                              std::span<const std::int32_t> /*expert_ids*/, std::span<const float> /*weights*/) {}
  // Decode: rows per expert over all ranks [num_experts], distinct experts activated on each rank [num_ranks].
  virtual void routed(std::int64_t /*moe_layer*/, std::span<const std::int32_t> /*counts*/,
                      std::span<const std::int32_t> /*activated*/) {}
};

}  // namespace metro
