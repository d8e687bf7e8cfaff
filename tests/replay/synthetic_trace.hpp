// Traces for replay tests, made of independent tokens.
#pragma once

#include "trace/count_table.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace metro::test {

// num_layers layers of num_experts experts whose popularity falls by `fall` percent from one to the next in turn (0:
// all equal), top_k of them per token; requests of 40 tokens.
inline RoutingTrace synthetic_trace(std::int64_t num_experts, std::int64_t top_k, std::int64_t num_layers,
                                    std::int64_t num_tokens, int fall) {
  CountTable table;
  table.model = {"test", "synthetic", num_experts, top_k, {}};
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    table.model.layers.push_back(static_cast<std::int32_t>(2 * layer + 1));
    std::int64_t sum = 0;
    std::int64_t count = 1'000'000;
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      table.counts.push_back(count);
      sum += count;
      count = count * (100 - fall) / 100;
    }
    // The sum must be top_k times a number of tokens: the most popular expert gives up the rest.
    table.counts[table.counts.size() - static_cast<std::size_t>(num_experts)] -= sum % top_k;
  }
  return draw_trace(table, {num_tokens, 40, 11});
}

}  // namespace metro::test
