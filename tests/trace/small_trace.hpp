// A trace that can be checked by eye: 3 requests, 2 recorded layers (1 and 3 of the model), 6 experts, top 2.
#pragma once

#include "trace/routing_trace.hpp"

namespace metro::test {

// Token i: layer 0 chooses i mod 6 and (i + 1) mod 6, layer 1 chooses (i + 3) mod 6 and (i + 5) mod 6. Requests 7, 8
// and 20 have 4, 3 and 2 tokens; the first of each is prefill.
inline RoutingTrace small_trace() {
  RoutingTrace trace;
  trace.model = {"qwen3_moe", "written by hand", 6, 2, {1, 3}};
  std::uint16_t token = 0;
  for (const auto& [request, num_tokens] : {std::pair{7U, 4U}, std::pair{8U, 3U}, std::pair{20U, 2U}}) {
    for (std::uint32_t position = 0; position < num_tokens; ++position, ++token) {
      for (const int offset : {0, 1, 3, 5}) {
        trace.topk_idx.push_back(static_cast<std::uint16_t>((token + offset) % 6));
        trace.topk_weight.push_back(offset % 2 == 0 ? 0.75F : 0.25F);
      }
      trace.request.push_back(request);
      trace.position.push_back(position);
      trace.token_id.push_back(100 + token);
      trace.step.push_back(position);
      trace.phase.push_back(position == 0 ? TracePhase::prefill : TracePhase::decode);
    }
  }
  return trace;
}

}  // namespace metro::test
