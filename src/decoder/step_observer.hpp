// Watches what the router, the routing and the layers of a step did: traces, statistics, tests.
#pragma once

#include <cstdint>
#include <span>

namespace metro {

// Called on the rank it was given to.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Own rows: expert_ids, weights [num_rows, top_k].
  virtual void router_choices(std::int64_t /*moe_layer*/, std::int64_t /*num_rows*/,
                              std::span<const std::int32_t> /*expert_ids*/, std::span<const float> /*weights*/) {}
  // Decode: rows per expert over all ranks [num_experts], distinct experts activated on each rank [num_ranks].
  virtual void routed(std::int64_t /*moe_layer*/, std::span<const std::int32_t> /*counts*/,
                      std::span<const std::int32_t> /*activated*/) {}
  // Steps that the host routes: residual [num_rows, H] of own rows after a layer, memory of kernels.
  virtual void layer_done(std::int64_t /*layer*/, std::int64_t /*num_rows*/, const float* /*residual*/) {}
};

}  // namespace metro
