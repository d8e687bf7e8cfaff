// A small trace with known experts: token t of request r chooses experts (r + t) mod 8 and (r + t + 1) mod 8 in layer 3
// and twice those, mod 8, plus 0 and 1 in layer 5.
#pragma once

#include "trace/routing_trace.hpp"

#include <cstdint>

namespace metro::test {

inline RoutingTrace tiny_trace(std::uint32_t num_requests, std::uint32_t tokens_per_request) {
  RoutingTrace trace;
  trace.model = {"test", "made for a test", 8, 2, {3, 5}};
  for (std::uint32_t request = 0; request < num_requests; ++request) {
    for (std::uint32_t token = 0; token < tokens_per_request; ++token) {
      const std::uint32_t first = request + token;
      for (const std::uint32_t expert : {first, first + 1, 2 * first, 2 * first + 1}) {
        trace.topk_idx.push_back(static_cast<std::uint16_t>(expert % 8));
      }
      trace.request.push_back(request);
      trace.position.push_back(token);
      trace.token_id.push_back(RoutingTrace::unknown_token);
      trace.step.push_back(RoutingTrace::unknown_step);
      trace.phase.push_back(TracePhase::decode);
    }
  }
  return trace;
}

}  // namespace metro::test
